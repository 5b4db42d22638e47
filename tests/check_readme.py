"""The programs in README.md are the files in examples/, to the letter."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
readme = (root / "README.md").read_text()
shown = re.findall(r"```cpp\n(.*?)```", readme, re.S)
files = [root / "examples" / name for name in ("first_program.cpp", "my_backend.cpp")]
if len(shown) != len(files):
    sys.exit(f"README.md shows {len(shown)} programs, expected {len(files)}")
for text, file in zip(shown, files):
    if text != file.read_text():
        sys.exit(f"README.md shows another text than {file.relative_to(root)}")
