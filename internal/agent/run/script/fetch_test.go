package script

import "testing"

func FuzzFileName(f *testing.F) {
	f.Add("a/b/train.py")
	f.Add("..")
	f.Add("\\x\\..\\y\x00")
	f.Fuzz(func(t *testing.T, s string) {
		n := fileName(s)
		if n == "" || n == "." || n == ".." || len(n) > 100 || fileName(n) != n {
			t.Errorf("%q becomes %q", s, n)
		}
		for _, c := range []byte(n) {
			if c <= ' ' || c >= 0x7f || c == '/' || c == '\\' {
				t.Errorf("%q becomes %q", s, n)
			}
		}
	})
}
