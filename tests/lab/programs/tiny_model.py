"""Writes a model that vLLM can serve with `--load-format dummy`: a configuration and a tokenizer
of single bytes. `tiny_model.py DIRECTORY`."""

import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast


def main() -> None:
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>"]
    vocabulary = {word: place for place, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(sys.argv[1])
    LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        bos_token_id=vocabulary["<s>"],
        eos_token_id=vocabulary["</s>"],
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
    ).save_pretrained(sys.argv[1])


main()
