"""What a caller writes: numbers of NumPy, words of other libraries, and what nobody may change."""

import operator
import re

import numpy as np
import pytest

import gpt2np
from gpt2np import Config, InputError, KVCache, Model, Params, Tokenizer, generate, score, stream
from gpt2np.answers import INSTEAD

tiny = Model(Params.random(Config(50257, 64, 8, 2, 1)), Tokenizer.gpt2())
EOT = 50256


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ({"seed": np.uint8(255), "num_samples": np.int8(2)}, {"seed": 255, "num_samples": 2}),
        ({"top_k": np.uint16(5)}, {"top_k": 5}),
        ({"num_beams": np.uint8(3)}, {"num_beams": 3}),
        ({"no_repeat_ngram": np.uint8(2)}, {"no_repeat_ngram": 2}),
        ({"temperature": np.float16(0.5), "top_p": np.float32(0.75)},
         {"temperature": 0.5, "top_p": 0.75}),
        ({"stop_at_eot": np.bool_(True)}, {"stop_at_eot": True}),
        ({"eos": np.array([11, 13], np.uint16)}, {"eos": [11, 13]}),
    ],
)  # fmt: skip
def test_numbers_of_numpy_are_pythons(given, plain):
    several = {"seed": 7, "max_new_tokens": 6}
    assert generate(tiny, "a", **several | given) == generate(tiny, "a", **several | plain)


def test_the_second_seed_of_a_byte_does_not_wrap():
    pair = generate(tiny, "a", seed=np.uint8(255), num_samples=2, max_new_tokens=6)
    assert pair[1].ids == generate(tiny, "a", seed=256, max_new_tokens=6).ids


def test_a_number_of_tokens_does_not_wrap_past_the_context():
    with pytest.raises(gpt2np.ContextError, match="max_new_tokens=200 make 300"):
        generate(tiny, [1] * 100, max_new_tokens=np.uint8(200))


@pytest.mark.parametrize(
    ("function", "keyword", "answer"),
    [
        (generate, "max_length", "give max_new_tokens"),
        (generate, "max_tokens", "give max_new_tokens"),
        (generate, "do_sample", r"give temperature \(0 is greedy"),
        (generate, "num_return_sequences", "give num_samples"),
        (generate, "eos_token_id", "give eos"),
        (generate, "pad_token_id", "leave it out"),
        (generate, "stop_strings", "give stop"),
        (generate, "top_n", "give top_k"),
        (generate, "tempreature", "did you mean temperature"),
        (generate, "zzz", "it takes model, prompt, "),
        (stream, "max_tokens", "give max_new_tokens"),
        (score, "add_special_tokens", "give special"),
        (score, "widow", "did you mean window"),
        (generate, "device_map", "leave it out"),
        (generate, "output_attentions", r"probe=gpt2np.Trace\(\)"),
        (gpt2np.save, "overwite", "did you mean overwrite"),
        (gpt2np.perplexity, "max_length", "it takes model, text, window, stride"),
        (gpt2np.perplexity, "strides", "did you mean stride"),
        (generate, "num_workers", "it takes model, prompt, "),  # and not "did you mean num_beams"
        (gpt2np.forward, "output_hidden_states", r"probe=gpt2np.Trace\(\)"),
        (gpt2np.forward, "past_key_values", "give cache"),
        (gpt2np.forward, "labels", "-gpt2np.score"),
    ],
)
def test_a_wrong_keyword_is_answered(function, keyword, answer):
    with pytest.raises(TypeError, match=f"^{function.__name__} takes no {keyword}: .*{answer}"):
        function(tiny, "a", **{keyword: 1})
    with pytest.raises(InputError):
        function(tiny, "a", **{keyword: 1})


@pytest.mark.parametrize(
    ("keyword", "answer"),
    [
        ("revision", '"owner/name@REVISION"'),
        ("torch_dtype", "give dtype"),
        ("device", "leave it out"),
        ("device_map", "leave it out"),
        ("token", "set HF_TOKEN"),  # and not "did you mean tokenizer"
        ("trust_remote_code", "leave it out"),
        ("local_files_only", "set HF_HUB_OFFLINE"),
    ],
)
def test_a_wrong_keyword_of_load_is_answered(keyword, answer):
    with pytest.raises(TypeError, match=f"^load takes no {keyword}: .*{answer}"):
        gpt2np.load(**{keyword: 1})


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda: tiny.generate("a"), r"write gpt2np.generate\(model, prompt\)"),
        (lambda: tiny.score("a"), r"write gpt2np.score\(model, text\)"),
        (lambda: tiny.eval, "leave it out: a model is ready"),
        (lambda: tiny.config.hidden_size, "write config.n_embd"),
        (lambda: tiny.tokenizer.batch_decode([[1]]), r"write tokenizer.decode\(ids\)"),
        (lambda: gpt2np.AutoTokenizer, r"write gpt2np.load\(source\).tokenizer"),
        (lambda: tiny.zzz, "^'Model' object has no attribute 'zzz'$"),
        (lambda: gpt2np.zzz, "^module 'gpt2np' has no attribute 'zzz'$"),
    ],
)
def test_a_wrong_attribute_is_answered(call, answer):
    with pytest.raises(AttributeError, match=answer):
        call()


@pytest.mark.parametrize(
    ("thing", "answer"), [(tiny, "gpt2np.forward"), (tiny.tokenizer, "tokenizer.encode")]
)
def test_a_call_of_what_is_no_function_is_answered(thing, answer):
    with pytest.raises(TypeError, match=f"is no function: write {answer}"):
        thing([1], attention_mask=None)


def test_answers_to_wrong_attributes_name_what_there_is():
    things = {
        "gpt2np": gpt2np,
        "model": tiny,
        "config": tiny.config,
        "params": tiny.params,
        "tokenizer": tiny.tokenizer,
        "cache": KVCache(tiny.params),
        "generation": generate(tiny, [1], max_new_tokens=1),
        "score": score(tiny, [1, 2]),
    }
    path_of = re.compile(rf"\b(?:{'|'.join(things)})(?:\.[a-z]\w*)+")
    for of, answers in INSTEAD.items():
        thing = gpt2np if of == "gpt2np" else things[of.lower().replace("kvc", "c")]
        assert type(thing).__name__ in (of, "module")
        for names, answer in answers.items():
            assert not [name for name in names.split() if hasattr(thing, name)]
            for path in path_of.findall(answer.format(name=names.split()[0])):
                first, _, rest = path.partition(".")
                operator.attrgetter(rest)(things[first])


def test_what_may_be_typed_after_the_package_is_offered():
    assert {"golden", "generate"} <= set(dir(gpt2np))


@pytest.mark.parametrize(
    ("call", "error", "answer"),
    [
        (lambda: gpt2np.load(3), InputError, "give a model's name or path, not 3"),
        (lambda: gpt2np.load("GPT2"), gpt2np.CheckpointError, "did you mean 'gpt2'"),
        (
            lambda: tiny.replace({"ln_f.b": 1}),
            gpt2np.CheckpointError,
            "there is no tensor 'ln_f.b': did you mean ln_f.bias",
        ),
        (lambda: tiny.replace({"ln_f.bias": 1}), InputError, "ln_f.bias: give an array, not 1"),
        (
            lambda: tiny.params["transformer.h.0.mlp.c_fc.weight"],
            KeyError,
            "did you mean h.0.mlp.c_fc.weight",
        ),
        (lambda: tiny.params["zzz"], KeyError, "there is no tensor 'zzz'"),
        (lambda: tiny.params["wte"], KeyError, "did you mean wte.weight"),
        (lambda: tiny.params["lm_head.weight"], KeyError, "the head is tied to wte.weight"),
    ],
)
def test_what_is_not_there_is_answered(call, error, answer):
    with pytest.raises(error, match=answer):
        call()


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda: generate("gpt2", "a"), r"load it, gpt2np.load\('gpt2'\)"),
        (lambda: stream("gpt2", "a"), r"load it, gpt2np.load\('gpt2'\)"),
        (lambda: score("gpt2", "a"), r"load it, gpt2np.load\('gpt2'\)"),
        (lambda: generate(tiny.params, "a"), "give the model itself, not model.params"),
        (lambda: gpt2np.perplexity(None, "a"), r"give a model, as gpt2np.load\(\) gives it"),
        (lambda: gpt2np.perplexity(tiny, ["a b", "c d"]), "for text in texts"),
        (lambda: gpt2np.forward(tiny, [1]), "give model.params"),
        (lambda: gpt2np.forward(tiny.params, "text"), r"model.tokenizer.encode\(text\)"),
        (lambda: KVCache(tiny), "give model.params"),
        (lambda: gpt2np.forward(tiny.params, [1], gpt2np.Trace()), "a probe is given as probe="),
        (lambda: gpt2np.explain("attn.scores"), "the model comes first"),
        (lambda: gpt2np.save("folder", tiny), "the model comes first"),
        (lambda: gpt2np.golden.record("gpt2", "a"), "the model comes first"),
        (lambda: Tokenizer("gpt2"), r"Tokenizer.gpt2\(\).*Tokenizer.from_files"),
    ],
)
def test_what_is_not_what_a_function_takes(call, answer):
    with pytest.raises(InputError, match=answer) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_signatures_show_every_setting():
    import inspect

    for function in (generate, stream):
        parameters = inspect.signature(function).parameters
        assert parameters["max_new_tokens"].default == 40
        assert parameters.keys() >= {"top_k", "seed", "num_samples", "eos", "special", "probe"}


def test_the_keywords_of_type_checkers_are_the_settings():
    from dataclasses import fields

    from gpt2np.generation.settings import Options, Settings

    assert Options.__annotations__.keys() == {f.name for f in fields(Settings)} - {"num_samples"}


# What is not a caller's to change


def test_a_processor_can_change_neither_prompt_nor_model():
    def processor(ids, logits):
        with pytest.raises(ValueError, match="read-only"):
            ids.fill(7)
        logits[:] = -np.inf
        logits[9] = 0
        return logits

    for options in ({}, {"num_beams": 2}, {"lookup": 4, "temperature": 0}):
        one = generate(tiny, [1, 2], processors=[processor], max_new_tokens=3, **options)
        assert (one.prompt_ids, one.ids) == ([1, 2], [9, 9, 9])


@pytest.mark.parametrize("options", [{"temperature": 0.05}, {"num_beams": 2}, {"lookup": 4}])
def test_numpys_error_state_changes_nothing(options):
    model = gpt2np.load()
    expected = generate(model, "ROMEO:", seed=1, max_new_tokens=8, **options)
    numbers = score(model, "ROMEO:").logprobs
    with np.errstate(all="raise"):
        assert generate(model, "ROMEO:", seed=1, max_new_tokens=8, **options) == expected
        assert np.array_equal(score(model, "ROMEO:").logprobs, numbers)


def test_a_beam_that_a_processor_kills_leaves_the_others():
    first = generate(tiny, [1], num_beams=4, max_new_tokens=1).ids[0]

    def processor(ids, logits):
        return np.full_like(logits, -np.inf) if first in ids[1:] else logits

    one = generate(tiny, [1], num_beams=4, max_new_tokens=4, processors=[processor])
    assert len(one.ids) == 4
    assert first not in one.ids[:-1]

    def killer(ids, logits):
        return np.full_like(logits, -np.inf)

    with pytest.raises(InputError, match="all tokens of every beam are masked"):
        generate(tiny, [1], num_beams=4, max_new_tokens=4, processors=[killer])


def test_a_processor_or_a_probe_that_runs_out():
    replies = iter([])
    for options in ({}, {"num_beams": 2}):
        for given in (
            {"processors": [lambda *_: next(replies)]},
            {"probe": lambda *_: next(replies)},
        ):
            with pytest.raises(InputError, match="raised StopIteration"):
                generate(tiny, [1], **given, **options)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"num_beams": 2}, {"lookup": 4}])
def test_logits_that_are_no_numbers_are_one_error(value, options):
    bias = np.full(8, value, np.float32)
    broken = tiny.replace({"ln_f.bias": bias})
    for call in (lambda: generate(broken, "a", **options), lambda: score(broken, "a")):
        with pytest.raises(InputError, match="logits") as caught:
            call()
        assert "\n" not in str(caught.value)


# Where a text begins and ends


def only(*tokens):
    """A processor that leaves these tokens, in turn."""

    def processor(ids, logits):
        row = np.full_like(logits, -np.inf)
        row[tokens[(len(ids) - 1) % len(tokens)]] = 0
        return row

    return processor


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"lookup": 4, "temperature": 0}])
@pytest.mark.parametrize(
    ("ends", "n", "reason"),
    [
        ({}, 3, "eot"),
        ({"eos": 464}, 1, "eot"),
        ({"eos": [995, 11]}, 2, "eot"),
        ({"eos": ()}, 5, "length"),
        ({"eos": 464, "stop_at_eot": False}, 5, "length"),
    ],
)
def test_the_ids_that_end_a_text(options, ends, n, reason):
    settings = {"max_new_tokens": 5, "processors": [only(464, 995, EOT)], **options, **ends}
    one = generate(tiny, [1], **settings)
    assert (len(one.ids), one.finish_reason) == (n, reason)
    shown = one.ids[:-1] if reason == "eot" else one.ids
    assert one.text == tiny.tokenizer.decode(shown)
    assert "".join(stream(tiny, [1], **settings)) == one.text


def test_an_end_that_is_no_token():
    with pytest.raises(InputError, match=r"eos is 50257, which is not in 0 \.\.\. 50256"):
        generate(tiny, "a", eos=50257)
    with pytest.raises(InputError, match="eos must be an integer >= 0, not 'a'"):
        generate(tiny, "a", eos="a")


def test_special_tokens_that_a_text_spells():
    text = "a<|endoftext|>b"
    assert EOT not in generate(tiny, text, max_new_tokens=1).prompt_ids
    assert generate(tiny, text, max_new_tokens=1, special=True).prompt_ids == [64, EOT, 65]
    assert EOT not in score(tiny, text).ids
    assert score(tiny, text, special=True).ids == [64, EOT, 65]


def test_what_the_tokenizers_files_ask_for_begins_a_text_once():
    asking = Tokenizer(Tokenizer.gpt2()._vocabulary._replace(begins_with=EOT))
    model = Model(tiny.params, asking)
    for prompt, special in (("ab", False), ("<|endoftext|>ab", True)):
        one = generate(model, prompt, special=special, max_new_tokens=1)
        assert one.prompt_ids == [EOT, *asking.encode("ab")]
    assert generate(model, "", max_new_tokens=1).prompt_ids == [EOT]
    assert generate(model, [1, 2], max_new_tokens=1).prompt_ids == [1, 2]
    assert score(model, "ab").ids == asking.encode("ab")
    assert score(model, "ab").total == pytest.approx(score(tiny, "ab").total)


# Texts of any kind


WORDS = ["a b", "c", ""]
KINDS = {
    "generator": lambda: (word for word in WORDS),
    "tuple": lambda: tuple(WORDS),
    "object array": lambda: np.array(WORDS, object),
    "array of str": lambda: np.array(WORDS),
    "keys": lambda: dict.fromkeys(WORDS).keys(),
    "series": lambda: pytest.importorskip("pandas").Series(WORDS, index=[5, 3, 9]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_iterable_of_str_is_a_list_of_texts(kind):
    expected = [one.ids for one in score(tiny, WORDS)]
    assert [one.ids for one in score(tiny, KINDS[kind]())] == expected
    assert [one.prompt_ids for one in generate(tiny, KINDS[kind](), max_new_tokens=1)] == [
        ids or [EOT] for ids in expected
    ]


def test_a_table_is_no_list_of_texts():
    table = pytest.importorskip("pandas").DataFrame({"text": WORDS})
    with pytest.raises(InputError, match="give one column of a table"):
        score(tiny, table)
    with pytest.raises(InputError, match=r"number 2 of the list: .*not float: nan"):
        score(tiny, table.text.where(table.text != "c", np.nan))
