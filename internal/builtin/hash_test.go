//go:build unix

package builtin

import "testing"

func TestHash(t *testing.T) {
	w := newEnv(t)
	for _, tc := range []struct{ input, digest string }{
		{`{"data": "abc"}`, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{`{"data": "abc", "algorithm": "md5"}`, "900150983cd24fb0d6963f7d28e17f72"},
		{`{"data": "é", "algorithm": "sha1", "encoding": "latin-1"}`, "1599e9fa41ec68c80230491902786bee889f5bcb"},
		{`{"data": "é", "algorithm": "sha3_256"}`, "9e9bf67e95b10ed4ce3fa9481ac0158a0e71ad67bf7904855258f161fb9dd648"},
	} {
		e := w.run(t.Context(), "hash", tc.input)
		if e.code != 0 || e.result["digest"] != tc.digest {
			t.Errorf("%s: %d %v %s", tc.input, e.code, e.result, e.message)
		}
	}
	e := w.run(t.Context(), "hash", `{"data": "é", "encoding": "ascii"}`)
	e.failed(t, "bad_input", "'é' cannot be encoded as ascii")
}
