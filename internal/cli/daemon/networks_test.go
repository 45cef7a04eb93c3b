package daemon

import "testing"

func TestNetworks(t *testing.T) {
	for text, want := range map[string]string{
		"private": "private", "none": "none", "any": "0.0.0.0/0,::/0",
		"203.0.113.9/24, fd00::1": "203.0.113.0/24,fd00::1/128", "10.0.0.5": "10.0.0.5/32",
	} {
		got, err := parseNetworks(text)
		if err != nil || formatNetworks(got) != want {
			t.Errorf("%q is %s, %v", text, formatNetworks(got), err)
		}
	}
	for _, text := range []string{"", "box.lan", "10.0.0.0/33", "private,none", "10.0.0.0/8,", "fe80::1%eth0"} {
		if got, err := parseNetworks(text); err == nil {
			t.Errorf("%q is %s", text, formatNetworks(got))
		}
	}
}
