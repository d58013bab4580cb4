import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    DebertaV2Config,
    GPT2Config,
    MPNetConfig,
    XLNetConfig,
)

from taskmix.uncertainty import bald, consistent_dropout, predictive_samples


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.body = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.4), nn.ReLU())
            self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, x):
        return self.head(self.body(x)).softmax(-1)


@pytest.fixture
def examples():
    return torch.randn(7, 6, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def bert():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
        )
        return BertModel(config, add_pooling_layer=False)


def encoded(bert, ids, padding=0):
    ids = torch.nn.functional.pad(ids, (0, padding))
    mask = (ids > 0).long()
    hidden = bert(input_ids=ids, attention_mask=mask).last_hidden_state
    return hidden[:, : ids.shape[1] - padding]


def test_all_examples_share_the_mask_of_a_pass(examples):
    net = Net()
    with consistent_dropout(net, seed=1, number=0):
        together = net(examples)
        alone = torch.cat([net(example[None]) for example in examples])
    torch.testing.assert_close(together, alone)


def test_a_pass_is_a_network_without_some_of_its_features(examples):
    net = Net()
    masks = {}
    with consistent_dropout(net, seed=1, number=0):
        for dropout, width in ((net.body[1], 16), (net.head[0], 16)):
            masks[dropout] = dropout(torch.ones(1, width))
        found = net(examples)
    hidden = (net.body[0](examples) * masks[net.body[1]]).relu() * masks[net.head[0]]
    torch.testing.assert_close(found, net.head[1](hidden).softmax(-1))
    assert not torch.equal(masks[net.body[1]] > 0, masks[net.head[0]] > 0)


def test_passes_differ_and_return_and_seeds_differ(examples):
    net = Net()

    def out(seed, number):
        with consistent_dropout(net, seed, number):
            return net(examples)

    assert not torch.equal(out(1, 0), out(1, 1))
    assert not torch.equal(out(1, 0), out(2, 0))
    assert torch.equal(out(1, 0), out(1, 0))


def test_features_are_dropped_at_the_given_rate_and_the_rest_made_up_for():
    # 10,000 features: a share kept off by 0.02 has probability 4e-5. Fixed seed.
    dropout = nn.Dropout(0.3)
    with consistent_dropout(dropout, seed=1, number=0):
        out = dropout(torch.ones(1, 10_000))
    assert (out > 0).float().mean().item() == pytest.approx(0.7, abs=0.02)
    assert out.max().item() == pytest.approx(1 / 0.7)


def test_channels_are_dropped_whole():
    dropout = nn.Dropout2d(0.5)
    with consistent_dropout(dropout, seed=1, number=0):
        out = dropout(torch.ones(3, 32, 4, 5))
    assert torch.equal(out, out[:1, :, :1, :1].expand_as(out))
    assert 0 < (out[0, :, 0, 0] > 0).sum() < 32


def test_a_transformer_gives_an_example_the_same_in_every_company_and_at_every_padding(bert):
    ids = torch.randint(1, 50, (4, 6), generator=torch.Generator().manual_seed(4))
    with consistent_dropout(bert, seed=1, number=0):
        together = encoded(bert, ids)
        padded = encoded(bert, ids[1:3], padding=5)
    torch.testing.assert_close(together[1:3], padded, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(together, encoded(bert.eval(), ids), atol=1e-3)


def test_what_has_no_dropout_module_behind_it_stays_off(bert):
    before = [(m, m.p) for m in bert.modules() if isinstance(m, nn.Dropout)]
    ids = torch.randint(1, 50, (4, 6), generator=torch.Generator().manual_seed(4))
    try:
        for module, _ in before:
            module.p = 0.0
        for layer in bert.encoder.layer:
            layer.attention.self.dropout.p = 0.5
        with consistent_dropout(bert, seed=1, number=0):
            found = encoded(bert, ids)
        torch.testing.assert_close(found, encoded(bert.eval(), ids))
    finally:
        for module, p in before:
            module.p = p


def small_encoder(kind, **options):
    """A model of a family that has a dropout module for its attention probabilities."""
    sizes = {"vocab_size": 50, "attn_implementation": "eager"}
    if kind == "gpt2":
        config = GPT2Config(n_embd=16, n_layer=1, n_head=2, **sizes, **options)
        config.reorder_and_upcast_attn = True
    elif kind == "xlnet":
        config = XLNetConfig(d_model=16, n_layer=1, n_head=2, d_inner=32, **sizes, **options)
    else:
        config = CONFIGS[kind](
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            **sizes,
            **options,
        )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return AutoModel.from_config(config)


CONFIGS = {"bert": BertConfig, "deberta": DebertaV2Config, "mpnet": MPNetConfig}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # DeBERTa's module uses it
@pytest.mark.parametrize("kind", ["bert", "deberta", "mpnet", "gpt2", "xlnet"])
def test_attention_probabilities_stay_whole_though_a_module_would_drop_them(kind):
    model = small_encoder(kind)
    ids = torch.randint(1, 50, (3, 7), generator=torch.Generator().manual_seed(4))
    shown = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "output_attentions": True}
    with consistent_dropout(model, seed=1, number=0):
        dropped = model(**shown)
    whole = model.eval()(**shown)
    assert not torch.allclose(dropped.last_hidden_state, whole.last_hidden_state, atol=1e-3)
    for attention in dropped.attentions:
        torch.testing.assert_close(attention.sum(-1), torch.ones_like(attention.sum(-1)))


class Attention(nn.Module):
    """Attention as one writes it by hand, with one dropout module for two things."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        weights = self.dropout((x @ x.transpose(-1, -2)).softmax(-1))
        return weights, self.dropout(weights @ x)


def test_a_module_that_serves_attention_and_features_drops_features_only(examples):
    attention, x = Attention(), torch.stack([examples, examples + 1])
    with consistent_dropout(attention, seed=1, number=0):
        weights, features = attention(x)
    expected, whole = attention.eval()(x)
    torch.testing.assert_close(weights, expected)
    kept = (features != 0).all(dim=(0, 1))
    assert 0 < kept.sum() < 6
    torch.testing.assert_close(features[..., kept], 2 * whole[..., kept])
    assert not features[..., ~kept].any()


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_and_the_generator_are_as_they_were(examples, fails):
    net = Net()
    net.train()
    net.head.eval()
    modes = [module.training for module in net.modules()]
    state = torch.get_rng_state()
    try:
        with consistent_dropout(net, seed=1, number=0):
            net(examples)
            torch.rand(3)
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert [module.training for module in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert all(not module._forward_hooks for module in net.modules())


def test_samples_have_passes_examples_and_classes_whatever_the_batches(examples):
    net = Net()
    whole = predictive_samples(net, net, [examples], passes=4, seed=1)
    cut = predictive_samples(net, net, [examples[:2], examples[2:]], passes=4, seed=1)
    assert whole.shape == (4, 7, 3)
    np.testing.assert_allclose(whole, cut, atol=1e-6)
    assert np.all(bald(whole) > 0)


def test_without_dropout_there_is_no_information_at_all(examples):
    net = Net()
    for module in (net.body[1], net.head[0]):
        module.p = 0.0
    assert np.all(bald(predictive_samples(net, net, [examples], passes=5, seed=1)) == 0)


def test_no_passes_are_refused(examples):
    net = Net()
    with pytest.raises(ValueError, match="passes: expected at least 1, found 0"):
        predictive_samples(net, net, [examples], passes=0, seed=1)
