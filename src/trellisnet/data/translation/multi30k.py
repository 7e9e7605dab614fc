"""Multi30k: descriptions of 31,000 photographs in German and English (Elliott et al., 2016)."""

from __future__ import annotations

from pathlib import Path

from trellisnet.core.checks import one_of
from trellisnet.data.checks import check_content
from trellisnet.data.files.download import Download
from trellisnet.data.files.places import Source, find
from trellisnet.data.translation.data import PairData
from trellisnet.data.translation.pairs import make_pair_data, read_pairs

SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
PAIRS = {"train": 29_000, "valid": 1_014, "test": 1_000}
LANGUAGES = ("de", "en")
HASHES = {
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
}
ORIGIN = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
MULTI30K = Source(
    ("multi30k",),
    tuple(name.removesuffix(".gz") for name in HASHES),
    tuple(Download(name, (f"{ORIGIN}/{name}",), f"sha256:{digest}") for name, digest in HASHES.items()),
    may_be_gzipped=True,
)


def load_multi30k(
    source: str = "de",
    target: str = "en",
    kind: str = "bpe",
    vocabulary_size: int | None = 6000,
    shared: bool = True,
    root: str | Path | None = None,
) -> PairData:
    """Load Multi30k, task 1: 29,000 sentence pairs for training, 1,014 for validation, and the 1,000 of test 2016.

    Args:
        source: language to translate from, "de" or "en".
        target: language to translate to, the other one.
        kind: "bpe" (needs the extra `text`), "words" or "characters".
        vocabulary_size: number of tokens of each vocabulary.
        shared: one vocabulary, and one embedding, for both languages.
        root: a folder to search first.

    Raises:
        ValueError: there is no such pair of languages, or a file is not the standard one.
        MissingDataError: the files are not found and cannot be downloaded.
    """
    one_of("source", source, LANGUAGES)
    one_of("target", target, LANGUAGES)
    if source == target:
        raise ValueError(f"source and target must be two languages, got {source!r} twice")
    _, files = find([MULTI30K], root)
    for path in files.values():
        if path.name in HASHES:  # the hashes of the unpacked files are not known; their lines are counted
            check_content(path, HASHES[path.name])
    splits = {split: read_pairs(files[f"{stem}.{source}"], files[f"{stem}.{target}"]) for split, stem in SPLITS.items()}
    for split, pairs in splits.items():
        if len(pairs) != PAIRS[split]:
            where = files[f"{SPLITS[split]}.{source}"]
            raise ValueError(
                f"{where}: must have {PAIRS[split]:,} sentences, got {len(pairs):,}: not the standard file"
            )
    note = f"{source} to {target}, task 1 of 2016, as published: not lower-cased, not tokenised before {kind}"
    return make_pair_data("multi30k", splits, kind, vocabulary_size, shared, note)
