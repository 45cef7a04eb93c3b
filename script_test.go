package muster_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

func TestLooksLikePython(t *testing.T) {
	for text, want := range map[string]bool{
		"import os\nprint(os.getpid())":                              true,
		"# a comment\n\nimport torch.nn as nn, numpy  # why\n":       true,
		"from pathlib import Path\n":                                 true,
		"from . import x\n":                                          true,
		"from __future__ import annotations\r\n":                     true,
		"\"\"\"What it does.\n\ncat x | grep y\n\"\"\"\nimport os\n": true,
		"'''One line.'''\ndef main():\n    pass\n":                   true,
		"n = 3\nprint(n)\n":                                          true,
		"def main(args, *rest):\n":                                   true,
		"async def main():\n":                                        true,
		"class A:\n  pass\n":                                         true,
		"class A(B):\n":                                              true,
		"print('hello')\n":                                           true,
		"if __name__ == '__main__':\n":                               true,

		"":                    false,
		"echo hello":          false,
		"set -e\nimport os\n": false,
		"cat > a.py <<EOF\nimport os\nEOF\npython3 a.py": false,
		"python3 - <<EOF\nimport os\nEOF":                false,
		"import screenshot.png":                          false, // of ImageMagick
		"import -window root shot.png":                   false,
		"import shot.PNG\n":                              false,
		"x=1\nprint $x":                                  false,
		"print() { echo hello; }\nprint":                 false,
		"print () { echo; }":                             false,
		"from=1":                                         false,
		"from me import":                                 false,
		"class":                                          false,
		"def f { :; }":                                   false,
		"if true; then echo; fi":                         false,
		"n = 3\n":                                        false,
		"const x = require('fs')":                        false,
		"# only a comment\n":                             false,
		"for i in 1 2 3; do echo $i; done":               false,
		"\"\"\"\nimport os\n":                            false,
	} {
		if got := muster.LooksLikePython(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// FuzzLooksLikePython checks that what one line makes recognisable as Python is an error for a shell, unless it only runs a program of the name
// import or from.
func FuzzLooksLikePython(f *testing.F) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		f.Skip("skipped: this machine has no sh")
	}
	for _, seed := range []string{"print(1)", "print(1", "def f(x): pass", "class A(B):", "if __name__ == 'x':", "print (x)", "class A:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		line, _, _ = strings.Cut(line, "\n")
		if !muster.LooksLikePython(line) || strings.ContainsAny(line, "#\"'`$\\\r\x00") {
			return
		}
		switch first, _, _ := strings.Cut(line, " "); first {
		case "import", "from", "class", "if":
			return
		}
		if exec.CommandContext(t.Context(), sh, "-n", "-c", line).Run() == nil {
			t.Errorf("%q is a shell script", line)
		}
	})
}
