"""TranslateProblem, the base class of tensor2tensor's translation problems, and its problems on WMT
data.

The problems on WMT data read the data that tensor2tensor's t2t-datagen generated. They do not
generate data.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_repro import registry
from t2t_repro.corpora.archives import Archive, unpack
from t2t_repro.corpora.parallel import Pair
from t2t_repro.errors import UserError
from t2t_repro.problems.text_problems import Text2TextProblem, text2text_txt_iterator
from t2t_repro.tensor2tensor.names import missing_name


class TranslateProblem(Text2TextProblem):
    """Translation of files that `source_data_files` names, with the interface of tensor2tensor's
    class.
    """

    is_generate_per_split = True

    def source_data_files(self, dataset_split: str) -> list[Any]:
        """Returns the sources of a split: a list of [URL of a tar archive or "", (source file,
        target file)].

        The files may be plain text, compressed (.gz, .bz2, .xz) or SGML (.sgm). Files that exist in
        --tmp_dir are read there. Others are unpacked from the archive in --tmp_dir, which is
        downloaded if it is missing.
        """
        raise UserError(
            f"problem {self.name}: define source_data_files(self, dataset_split), or "
            "generate_samples"
        )

    def generate_samples(self, data_dir: str, tmp_dir: str, dataset_split: str) -> Iterator[Pair]:
        for url, files in self.source_data_files(dataset_split):
            if len(files) != 2 or files[0] == "tmx":
                raise UserError(
                    f"problem {self.name}: source_data_files has {files!r}; only (source file, "
                    "target file) is supported, so read other formats in generate_samples"
                )
            missing = [file for file in files if not Path(tmp_dir, file).is_file()]
            folder = unpack({Archive(url): files}, tmp_dir) if missing and url else Path(tmp_dir)
            yield from text2text_txt_iterator(str(folder / files[0]), str(folder / files[1]))


class WmtProblem(TranslateProblem):
    """Base class of the problems on WMT data.

    target_space_id is 0, as in tensor2tensor since version 1.5.2. Before, it was 8 for German and 6
    for French.
    """

    def check(self) -> None:
        raise UserError(
            f"problem {self.name} only reads data that tensor2tensor generated: give its folder "
            f"to t2t-trainer, --data_dir; t2t-datagen --problem={self.replaced_by} generates data "
            "of this kind"
        )


@registry.register_problem
class TranslateEndeWmt32k(WmtProblem):
    """tensor2tensor's WMT English to German, with 32k subwords. Reads data that tensor2tensor
    generated.
    """

    languages = ("en", "de")
    replaced_by = "wmt_ende"


@registry.register_problem
class TranslateEndeWmt8k(TranslateEndeWmt32k):
    """tensor2tensor's WMT English to German, with 8k subwords. Reads data that tensor2tensor
    generated.
    """

    approx_vocab_size = 2**13


@registry.register_problem
class TranslateEnfrWmt32k(WmtProblem):
    """tensor2tensor's WMT English to French, with 32k subwords. Reads data that tensor2tensor
    generated.
    """

    languages = ("en", "fr")
    replaced_by = "wmt_enfr"


@registry.register_problem
class TranslateEnfrWmt8k(TranslateEnfrWmt32k):
    """tensor2tensor's WMT English to French, with 8k subwords. Reads data that tensor2tensor
    generated.
    """

    approx_vocab_size = 2**13


@registry.register_problem
class TranslateEnfrWmtSmall32k(TranslateEnfrWmt32k):
    """tensor2tensor's English to French with 1 M pairs and 32k subwords. Reads data that
    tensor2tensor generated.
    """


@registry.register_problem
class TranslateEnfrWmtSmall8k(TranslateEnfrWmt8k):
    """tensor2tensor's English to French with 1 M pairs and 8k subwords. Reads data that
    tensor2tensor generated.
    """


def __getattr__(name: str) -> Any:
    """Raises UserError for classes and functions of tensor2tensor's module that do not exist
    here.
    """
    raise missing_name("translate", name)
