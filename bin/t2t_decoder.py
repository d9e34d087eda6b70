"""Translates text: t2t-decoder --output_dir=M --decode_from_file=x.en --decode_to_file=x.de

Without files it reads standard input and writes standard output. N lines in give N lines out, in their order; a line
ends with "\\n" alone, and an empty line gives an empty one. The model folder is all it needs.
"""

from __future__ import annotations

import sys

from absl import flags

from t2t_repro.bin import program
from t2t_repro.hparam import override
from t2t_repro.textfile import decode_lines, read_lines, whole_file

FLAGS = flags.FlagValues()
program.define_model_folder(FLAGS)
flags.DEFINE_string(
    "decode_from_file", "", "text to translate, plain or .gz; default: standard input", flag_values=FLAGS
)
flags.DEFINE_string("decode_to_file", "", "where to write; default: standard output", flag_values=FLAGS)
program.define_decode_hparams(FLAGS)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and translates."""
    program.required(values, "output_dir")
    from t2t_repro.model_folder import ModelFolder

    folder = ModelFolder(values.output_dir)
    decode_hparams = override(folder.problem.decode_hparams, values.decode_hparams)
    checkpoint = folder.checkpoint(values.checkpoint_path)
    if values.decode_from_file:
        texts = list(read_lines(values.decode_from_file))
    else:
        texts = list(decode_lines(sys.stdin.buffer, "standard input"))

    program.load_tensorflow()
    from t2t_repro.decoding.translator import Translator
    from t2t_repro.progress import Progress, say

    say(f"{checkpoint}: {decode_hparams}")
    translator = Translator(folder.model(checkpoint), folder.vocabulary, decode_hparams)
    progress = Progress("decoding", len(texts), "lines")
    translations = translator.translate(texts, progress.advance)
    progress.close()
    lines, report = folder.problem.finish(texts, [translation.text for translation in translations])
    if report:
        say(str(report))
    output = "".join(f"{line}\n" for line in lines).encode("utf-8")
    if values.decode_to_file:
        with whole_file(values.decode_to_file) as file:
            file.write(output)
    else:
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()


def run() -> None:
    """The program t2t-decoder."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
