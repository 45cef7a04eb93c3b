package tool

import "testing"

func TestBus(t *testing.T) {
	for s, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00.0", "0000:0C:00.0": "0000:0c:00.0", "3b:00.0": "0000:3b:00.0", "00010000:01:00.0": "10000:01:00.0",
		"N/A": "", "": "", "1:2:3": "", "zz:00.0": "", "a:b:c.d:e": "",
	} {
		if got := PCIAddress(s); got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
	}
}
