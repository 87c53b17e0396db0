"""Each layer against torch's, and erf against the C library's."""

import math

import numpy as np
import pytest
from closeness import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from gpt2np import kernels, layers
from gpt2np.params import Affine

DTYPES = [np.float32, np.float64]
EPSILON = {np.float32: 1.2e-7, np.float64: 2.3e-16}  # of the format


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def normal(dtype, *shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def float_arrays(limit, min_dims=1):
    """Arrays of either dtype, of any shape, of values up to `limit`."""
    values = st.floats(-limit, limit, width=32)
    shapes = array_shapes(min_dims=min_dims, max_dims=4, min_side=1, max_side=9)
    return st.sampled_from(DTYPES).flatmap(lambda dtype: arrays(dtype, shapes, elements=values))


def frozen(*given_arrays):
    for array in given_arrays:
        array.flags.writeable = False
    return given_arrays


def roundings(n):
    return {dtype: n * epsilon for dtype, epsilon in EPSILON.items()}


# layer_norm


@settings(max_examples=50, deadline=None)
@given(float_arrays(1e4), st.sampled_from([1e-5, 1e-12, 1e-3]), st.integers(0, 9))
def test_layer_norm(x, epsilon, seed):
    torch = pytest.importorskip("torch")
    D, dtype = x.shape[-1], x.dtype.type
    p = Affine(normal(dtype, D, seed=seed), normal(dtype, D, seed=seed + 1))
    frozen(x, *p)
    # A row's spread may be lost in its rounding: then no digit of (x - mean) / spread is sure.
    spread = np.sqrt(x.astype(np.float64).var(-1) + epsilon)
    unsure = np.abs(x).max(-1) / spread * (1 + np.abs(p.weight).max())
    theirs = torch.nn.functional.layer_norm(
        torch.tensor(x), (D,), torch.tensor(p.weight), torch.tensor(p.bias), epsilon
    )
    ours = layers.layer_norm(x, p, epsilon)
    assert ours.dtype == x.dtype
    tolerance = 20 * EPSILON[dtype] * (1 + unsure[..., None]) * (1 + unsure[..., None])
    assert (np.abs(ours - theirs.numpy()) <= tolerance).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D", [1, 2, 48, 768, 1600])
def test_layer_norm_at_the_models_widths(torch, D, dtype):
    x = normal(dtype, 3, 50, D, scale=3) + dtype(1)
    p = Affine(normal(dtype, D), normal(dtype, D, seed=1))
    theirs = torch.nn.functional.layer_norm(torch.tensor(x), (D,), *map(torch.tensor, p), 1e-5)
    assert_close(layers.layer_norm(x, p, 1e-5), theirs, roundings(30), 1)
    assert_close(layers.layer_norm(x[1:2, 4:5], p, 1e-5), theirs[1:2, 4:5], roundings(30), 1)


def test_layer_norm_divides_by_the_width_and_adds_epsilon_inside_the_root():
    x = np.array([1.0, 2.0, 6.0])  # mean 3, biased variance 14/3
    p = Affine(np.array([1.0, 2.0, 3.0]), np.array([0.0, 10.0, 20.0]))
    root = math.sqrt(14 / 3 + 0.5)
    assert layers.layer_norm(x, p, 0.5) == pytest.approx([-2 / root, 10 - 2 / root, 20 + 9 / root])


# gelu, erf


def exact_gelu(torch, x, approximate):
    """torch's GELU, computed in float64: its erf form in float32 may err by 9 roundings."""
    given = torch.tensor(x)
    return torch.nn.functional.gelu(given.double(), approximate=approximate).to(given.dtype)


@settings(max_examples=50, deadline=None)
@given(float_arrays(1e4))
def test_gelu(x):
    torch = pytest.importorskip("torch")
    frozen(x)
    for kind, approximate in (
        ("gelu_new", "tanh"),
        ("gelu_pytorch_tanh", "tanh"),
        ("gelu", "none"),
    ):
        assert_close(
            layers.ACTIVATIONS[kind](x), exact_gelu(torch, x, approximate), roundings(8), 1
        )


# More elements than fit into a block, widths that do not divide it, and rows wider than one.
MANY_ROWS = [(2, 55, 3072), (300, 333), (2, 70001)]


@pytest.mark.parametrize("shape", MANY_ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows(torch, shape, dtype):
    functional, (x,) = torch.nn.functional, frozen(normal(dtype, *shape, scale=3))
    theirs = torch.tensor(x)
    assert_close(layers.ACTIVATIONS["gelu_new"](x), exact_gelu(torch, x, "tanh"), roundings(8), 1)
    assert_close(layers.ACTIVATIONS["gelu"](x), exact_gelu(torch, x, "none"), roundings(8), 1)
    assert_close(layers.softmax(x), theirs.softmax(-1), roundings(40), 1)
    assert_close(layers.log_softmax(x), theirs.log_softmax(-1), roundings(60), 1)
    p = Affine(normal(dtype, shape[-1]), normal(dtype, shape[-1], seed=1))
    normed = functional.layer_norm(theirs, shape[-1:], *map(torch.tensor, p))
    assert_close(layers.layer_norm(x, p, 1e-5), normed, roundings(40), 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["gelu_new", "gelu", "silu", "quick_gelu"])
def test_gelu_at_the_ends(kind, dtype):
    x = np.array([0.0, -0.0, 1e10, -1e10, np.nan], dtype)
    y = layers.ACTIVATIONS[kind](x)
    assert y[:3].tolist() == [0, 0, dtype(1e10)]
    assert abs(y[3]) < 1e-20
    assert np.isnan(y[4])


def test_the_two_gelus_differ_where_the_parity_tests_look():
    x = normal(np.float64, 100)
    assert np.abs(layers.ACTIVATIONS["gelu"](x) - layers.ACTIVATIONS["gelu_new"](x)).max() > 1e-4


@settings(max_examples=50, deadline=None)
@given(st.floats(-30, 30))
def test_erf_of_a_float64(x):
    assert float(kernels.erf(np.array(x))) == pytest.approx(math.erf(x), abs=4.5e-16, rel=0)


@settings(max_examples=50, deadline=None)
@given(st.floats(-30, 30, width=32))
def test_erf_of_a_float32(x):
    assert float(kernels.erf(np.array(x, np.float32))) == pytest.approx(
        math.erf(x), abs=3e-7, rel=0
    )


def test_erf_all_along():
    x = np.linspace(-7, 7, 20001)
    exact = np.array([math.erf(value) for value in x])
    assert np.abs(kernels.erf(x) - exact).max() <= 4.5e-16
    narrow = x.astype(np.float32)
    exact = np.array([math.erf(value) for value in narrow.tolist()])
    assert np.abs(kernels.erf(narrow) - exact).max() <= 3e-7
    assert kernels.erf(np.array([np.inf, -np.inf])).tolist() == [1.0, -1.0]


# softmax, log_softmax


@settings(max_examples=50, deadline=None)
@given(float_arrays(1e4), st.data())
def test_softmax(x, data):
    torch = pytest.importorskip("torch")
    # Some are masked, but never a whole row.
    mask = data.draw(arrays(bool, x.shape))
    mask[..., data.draw(st.integers(0, x.shape[-1] - 1))] = False
    x[mask] = -np.inf
    frozen(x)
    assert_close(layers.softmax(x), torch.tensor(x).softmax(-1), roundings(20), 1)
    ours = layers.softmax(x)
    assert np.abs(ours.sum(-1) - 1).max() <= 20 * EPSILON[x.dtype.type]
    assert (ours[mask] == 0).all()


@settings(max_examples=50, deadline=None)
@given(float_arrays(1e4))
def test_log_softmax(x):
    torch = pytest.importorskip("torch")
    frozen(x)
    assert_close(layers.log_softmax(x), torch.tensor(x).log_softmax(-1), roundings(20), 1)


def test_log_softmax_of_masked_logits(torch):
    x = np.array([[0.0, -np.inf, 3.0], [-np.inf, -np.inf, 5.0]])
    ours, theirs = layers.log_softmax(x), torch.tensor(x).log_softmax(-1).numpy()
    assert np.array_equal(np.isneginf(ours), np.isneginf(theirs))
    finite = ~np.isneginf(ours)
    assert np.abs(ours[finite] - theirs[finite]).max() <= 1e-15


# linear


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear(torch, dtype):
    p = Affine(normal(dtype, 7, 5), normal(dtype, 5, seed=1))
    weight, bias = map(torch.tensor, p)
    for shape in ((7,), (2, 3, 7), *((n, 7) for n in range(1, 20))):
        x = normal(dtype, *shape, seed=2)
        frozen(x, *p)
        assert_close(layers.linear(x, p), torch.tensor(x) @ weight + bias, roundings(30), 1)


# attention


def sdpa(torch, q, k, v, scale):
    """torch's attention, with the mask that is counted from the lower right corner."""
    T, S = q.shape[2], k.shape[2]
    seen = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    z = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, (q, k, v)), attn_mask=seen, scale=scale
    )
    return z


def qkv(dtype, shape, S, seed=0):
    """Queries of the shape [B, H, T, K], keys and values of S positions."""
    B, H, _, K = shape
    q = normal(dtype, *shape, seed=seed, scale=2)
    return frozen(q, *(normal(dtype, B, H, S, K, seed=seed + i) for i in (1, 2)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("T", "S"),
    [
        (1, 1),
        (1, 2),
        (2, 2),
        (5, 9),
        (127, 127),
        (128, 128),
        (129, 129),
        (300, 300),
        (1, 300),
        (127, 300),
        (128, 129),
        (129, 300),
        (256, 257),
        (257, 400),
    ],
)
def test_attention_across_blocks_of_queries(torch, T, S, dtype):
    q, k, v = qkv(dtype, (2, 5, T, 8), S)
    assert_close(layers.attention(q, k, v, 0.6), sdpa(torch, q, k, v, 0.6), roundings(60), 1)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 20), st.integers(1, 80)),
    st.integers(0, 20),
    st.floats(0.01, 1.0),
    st.integers(0, 99),
)
def test_attention_of_any_shape(dtype, shape, cached, scale, seed):
    torch = pytest.importorskip("torch")
    q, k, v = qkv(dtype, shape, shape[2] + cached, seed)
    assert_close(layers.attention(q, k, v, scale), sdpa(torch, q, k, v, scale), roundings(1000), 1)


@pytest.mark.parametrize("T", [3, 300])
def test_nothing_of_the_future_reaches_a_query(T):
    q, k, v = (array.copy() for array in qkv(np.float64, (1, 2, T, 4), T))
    before = layers.attention(q, k, v, 0.5)
    k[:, :, -1], v[:, :, -1] = 1e4, -1e4
    after = layers.attention(q, k, v, 0.5)
    assert np.array_equal(before[:, :, :-1], after[:, :, :-1])
    assert not np.array_equal(before[:, :, -1], after[:, :, -1])


def test_attention_with_huge_scores(torch):
    """The maximum is taken off first: no overflow at 1e4 x 1e4."""
    for dtype in DTYPES:
        q, k, v = qkv(dtype, (1, 1, 4, 2), 6)
        q, k = q * dtype(1e4), k * dtype(1e4)
        assert_close(layers.attention(q, k, v, 1.0), sdpa(torch, q, k, v, 1.0), roundings(60), 1)


def test_split_heads(torch):
    x = normal(np.float32, 2, 5, 24)
    ours = layers.split_heads(x, 4)
    for array, part in zip(ours, torch.tensor(x).split(8, dim=2), strict=True):
        assert np.array_equal(array, part.view(2, 5, 4, 2).transpose(1, 2).numpy())
        assert np.shares_memory(array, x)


def test_rows_of_a_large_array_in_any_order():
    """A probe may return an array in another order than it was given."""
    scores = np.random.default_rng(0).standard_normal((1, 4, 300, 300))
    turned = np.asfortranarray(scores)
    assert np.array_equal(layers.softmax(turned), layers.softmax(scores))
