"""The providers' libraries of PyPI: answers each line of JSON with one.

`{"name"}` asks what is known of libraries/NAME.py; with `judge` or `sign` it calls that function of the file.
"""

import base64
import importlib.metadata
import importlib.util
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent / "libraries"
OUT = sys.stdout
sys.stdout = sys.stderr  # what a library prints is no answer


def load(name, loaded={}):
    if name not in loaded:
        spec = importlib.util.spec_from_file_location(name.replace("-", "_"), FOLDER / f"{name}.py")
        loaded[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded[name])
    return loaded[name]


def facts(module):
    def of(key, default=None):
        return getattr(module, key, default)

    return {
        "library": module.LIBRARY,
        "version": importlib.metadata.version(module.LIBRARY),
        "secret": module.SECRET,
        "settings": of("SETTINGS", ""),
        "differs": of("DIFFERS", {}),
        "looks_at_time": of("LOOKS_AT_TIME", False),
        "type": of("TYPE"),
        "sample": of("SAMPLE"),
        "signs": hasattr(module, "sign"),
    }


def answer(question):
    module = load(question["name"])
    if asked := question.get("judge"):
        try:
            body = base64.b64decode(asked["body"])
            found = module.judge(body, asked["headers"], asked["url"], asked["secret"])
            return False if found is None else found
        except Exception:  # each library has its own
            return False
    if asked := question.get("sign"):
        asked.pop("url", None)
        return module.sign(**asked)
    return facts(module)


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), file=OUT, flush=True)
