"""word_tokenizer.py DIR [TEXT_FILE]...: a tokenizer for clients that insist on one and must not reach the network; every word of the files is a token, any other is [UNK]."""
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

vocabulary = {"[UNK]": 0, "[BOS]": 1, "[EOS]": 2}
for name in sys.argv[2:]:
    with open(name, encoding="utf-8") as f:
        for word in f.read().split():
            vocabulary.setdefault(word, len(vocabulary))
t = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=t, unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]").save_pretrained(sys.argv[1])
