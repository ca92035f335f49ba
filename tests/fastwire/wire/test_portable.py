"""The portable form of code for one kind of processor: it is compiled, and computes the same."""

import shutil
import subprocess
import zlib
from pathlib import Path
from random import Random

import pytest

HEADERS = Path(__file__).parents[3] / "fastwire" / "wire"
PROGRAM = r"""
#include <stdio.h>
#include "crc.h"
#include "crc32.h"

int main(void)
{
    static uint8_t data[1 << 20];
    int64_t size = (int64_t)fread(data, 1, sizeof data, stdin);
    fw_crc32_prepare();
    printf("%d %d", fw_crc32c_here(), fw_crc32_folds);
    for (int64_t end = 0; end <= size; end += end < 300 ? 1 : 997)
        printf(" %u", fw_crc32(data, end));
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler")
@pytest.mark.parametrize("flags", [[], ["-DFW_PORTABLE"]])
def test_sums_with_and_without_the_instructions_of_a_processor(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "sums.c").write_text(PROGRAM)
    command = ["cc", "-O1", "-Wall", "-Werror", "-Wno-unused-function", *flags, f"-I{HEADERS}", "-o", "sums", "sums.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    data = Random(1).randbytes(20_000)
    said = subprocess.run([tmp_path / "sums"], input=data, capture_output=True, check=True).stdout.split()
    here, folds, *sums = map(int, said)
    if flags:
        assert (here, folds) == (0, 0)
    ends = [*range(301), *range(300 + 997, len(data) + 1, 997)]
    assert sums == [zlib.crc32(data[:end]) for end in ends]
