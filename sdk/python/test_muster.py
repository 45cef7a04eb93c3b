"""Tests of the muster module, with the standard library only: python3 -m unittest."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import muster

HERE = pathlib.Path(__file__).parent


class InATask(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = pathlib.Path(self.folder.name)
        env = {
            "MUSTER_TASK": "17.3",
            "MUSTER_INDEX": "3",
            "MUSTER_OUT": str(self.dir / "out"),
            "MUSTER_EVENTS": str(self.dir / "events"),
            "MUSTER_CHECKPOINT": str(self.dir / "ckpt"),
        }
        patch = mock.patch.dict(os.environ, env)
        patch.start()
        self.addCleanup(patch.stop)

    def events(self):
        return [json.loads(line) for line in (self.dir / "events").read_text().splitlines()]

    def test_progress_and_metrics_are_json_lines(self):
        muster.progress(0.5, step="epoch 1/2", loss=0.25)
        muster.metric(accuracy=1)
        muster.progress(sum([0.1] * 10) + 1e-9)
        self.assertEqual(
            self.events(),
            [{"progress": 0.5, "step": "epoch 1/2", "loss": 0.25}, {"accuracy": 1.0}, {"progress": 1.0}],
        )

    def test_a_diverged_loss_is_left_out(self):
        muster.progress(0.5, loss=float("nan"))
        muster.metric(loss=float("inf"))
        self.assertEqual(self.events(), [{"progress": 0.5}])

    def test_progress_out_of_range_is_an_error(self):
        for bad in (42, -1, float("nan")):
            with self.assertRaises(ValueError):
                muster.progress(bad)

    def test_lines_of_threads_do_not_mix(self):
        def report():
            for i in range(200):
                muster.progress(i / 200, step="x" * 100)

        threads = [threading.Thread(target=report) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(self.events()), 800)

    def test_result(self):
        class Scalar:  # as NumPy's
            def item(self):
                return 0.97

        muster.result({"accuracy": Scalar(), "path": pathlib.Path("a/b")})
        self.assertEqual(json.loads((self.dir / "out" / "result.json").read_text()), {"accuracy": 0.97, "path": "a/b"})
        self.assertEqual(os.listdir(self.dir / "out"), ["result.json"])
        for bad in (float("nan"), "x" * 300_000):
            with self.assertRaises(ValueError):
                muster.result(bad)

    def test_fail(self):
        with self.assertRaises(SystemExit) as end:
            muster.fail("epochs: write at least 1")
        self.assertEqual(end.exception.code, "epochs: write at least 1")
        said = json.loads((self.dir / "out" / "failure.json").read_text(encoding="utf-8"))
        self.assertEqual(said, {"reason": "bad_input", "message": "epochs: write at least 1"})

    def test_save(self):
        class Figure:
            def savefig(self, path):
                pathlib.Path(path).write_text("drawn")

        os.chdir(self.dir)
        (self.dir / "plain.txt").write_text("copied")
        muster.save("text.txt", "a")
        muster.save("raw.bin", b"b")
        muster.save("scores.json", {"a": 1})
        muster.save("plots/figure.png", Figure())
        muster.save("object.pkl", [1, 2])
        muster.save("plain.txt")
        muster.save(self.dir / "plain.txt")
        out = self.dir / "out"
        found = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
        self.assertEqual(found, ["object.pkl", "plain.txt", "plots/figure.png", "raw.bin", "scores.json", "text.txt"])
        self.assertEqual((out / "plain.txt").read_text(), "copied")
        for bad in ("../x", "/tmp/x"):
            with self.assertRaises(ValueError):
                muster.save(bad, "text")

    def test_live(self):
        shown = muster.out_dir() / "live/a.png"
        with muster.live("a.png") as path:
            path.write_bytes(b"one")
            self.assertFalse(shown.exists())
        with self.assertRaises(RuntimeError), muster.live("a.png") as path:
            path.write_bytes(b"half of tw")
            raise RuntimeError
        self.assertEqual(shown.read_bytes(), b"one")
        self.assertEqual([p.name for p in shown.parent.iterdir()], ["a.png"])
        for name in ("", ".a", "../a", "a/b", ".."):
            with self.assertRaises(ValueError), muster.live(name):
                pass

    def test_checkpoint_and_index(self):
        self.assertTrue(muster.running())
        self.assertEqual(muster.index(), "3")
        self.assertTrue(muster.checkpoint_dir().is_dir())


class OutsideMuster(unittest.TestCase):
    def test_the_same_program_runs(self):
        program = "import muster; muster.progress(0.5, step='half'); muster.result([1]); print(muster.running(), muster.index())"
        with tempfile.TemporaryDirectory() as folder:
            env = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}
            env["PYTHONPATH"] = str(HERE)
            done = subprocess.run([sys.executable, "-c", program], cwd=folder, env=env, capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, "False 0\n")
            self.assertEqual(done.stderr, 'progress: {"progress": 0.5, "step": "half"}\n')
            self.assertEqual(pathlib.Path(folder, "out", "result.json").read_text(), "[1]")


if __name__ == "__main__":
    unittest.main()
