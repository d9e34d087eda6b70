"""Installs t2t_repro. The top-level folders problems/, hparams/ and bin/ become packages inside
t2t_repro.
"""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
EXTRAS = {
    "beam": ["apache-beam>=2.70,<3"],
    "ctranslate2": ["ctranslate2>=4.7,<5"],
    # TensorFlow Datasets imports importlib_resources, but does not require it.
    "datasets": ["importlib-resources>=6,<8", "tensorflow-datasets>=4.9.9,<5"],
    "figures": ["matplotlib>=3.9,<4"],
    "insights": ["flask>=3.1,<4", "waitress>=3,<4"],
    "tokenizers": ["tokenizers>=0.21,<1"],
}
"""Optional dependencies by name of the extra: `pip install ".[beam]"` also installs those of
"beam".
"""
JAX = {"jax": ["jax>=0.10,<1", "optax>=0.2.8,<0.3"]}
"""The extra for docs/jax.md. It is not part of "test": `make test` installs it in another folder
(see Makefile).
"""
BROWSER = "selenium>=4.30,<5"
"""Controls the browser in which the page of t2t-insights is tested."""
RUFF = "ruff>=0.17,<0.18"
DOCS = [
    "latex2mathml>=3.78,<4",
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.6,<10",
    "mkdocstrings-python>=2,<3",
    RUFF,
]
"""Packages that build the documentation site. Ruff breaks the lines of long signatures."""
NOTEBOOKS = ["ipykernel>=6.29,<8", "nbclient>=0.10,<0.12", "nbformat>=5.10,<6"]
"""Packages that execute the notebooks."""
PEERS = [*EXTRAS["ctranslate2"], "torch>=2.4,<3", "transformers>=5.2,<6"]
"""Packages with which the scripts in benchmarks/ compare this one."""

setup(
    name="t2t_repro",
    version="1.0.0",
    description='The Transformer of "Attention Is All You Need", as tensor2tensor gave it, on TensorFlow 2 and Keras 3',  # noqa: E501
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The t2t_repro authors",
    license_expression="Apache-2.0",
    keywords=(
        "transformer, machine translation, attention, tensor2tensor, tensorflow, keras, beam "
        "search, parsing"
    ),
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    project_urls={
        "Paper": "https://arxiv.org/abs/1706.03762",
        "tensor2tensor": "https://github.com/tensorflow/tensor2tensor",
    },
    python_requires=">=3.11,<3.14",
    packages=[
        *find_packages(include=["t2t_repro", "t2t_repro.*"]),
        *(f"t2t_repro.{folder}" for folder in ("problems", "hparams", "bin")),
    ],
    package_dir={f"t2t_repro.{folder}": folder for folder in ("problems", "hparams", "bin")},
    package_data={"t2t_repro": ["py.typed", "insights/page/*"]},
    install_requires=[
        "absl-py>=2.1,<3",
        "google-crc32c>=1.6,<2",
        "grpcio>=1.60,<2",
        "keras>=3.15,<4",
        "langcodes>=3.5,<4",
        "num2words>=0.5.13,<0.6",
        "numpy>=2.0,<3",
        "regex>=2024.5.15",
        "sacrebleu>=2.5,<3",
        "sacremoses>=0.1.1,<0.3",
        "sentencepiece>=0.2.3,<0.3",
        "tensorflow>=2.20,<2.22",
        "tensorflow-serving-api>=2.19,<2.22",
        # Windows has no wheel of it: pip installs the rest, and the programs say what to do
        # (bin/__init__.py).
        'tensorflow-text>=2.20,<2.22; sys_platform != "win32"',
        "tqdm>=4.66,<5",
        "urllib3>=2.2,<3",
    ],
    extras_require=EXTRAS
    | JAX
    | {
        "benchmarks": [*PEERS, BROWSER, "pillow>=11,<13", *EXTRAS["figures"], *NOTEBOOKS],
        "docs": DOCS,
        "test": [
            "hypothesis>=6.160,<7",
            "mypy>=1.15,<3",
            "pytest>=8,<10",
            "pytest-xdist>=3.8,<4",
            BROWSER,
            "tensorboard>=2.20,<2.22",
            *DOCS,
            *NOTEBOOKS,
            *(requirement for requirements in EXTRAS.values() for requirement in requirements),
        ],
    },
    entry_points={
        "console_scripts": [
            f"{program.stem.replace('_', '-')}=t2t_repro.bin.{program.stem}:run"
            for program in sorted(ROOT.glob("bin/t2t_*.py"))
        ]
    },
)
