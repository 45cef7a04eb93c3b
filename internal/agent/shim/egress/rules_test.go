package egress

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// allows reports whether rules allow a request for host.
func allows(t *testing.T, r *Rules, host string) bool {
	t.Helper()
	name, port, err := splitHostPort(host)
	if err != nil || port == 0 {
		t.Fatalf("%q: %v", host, err)
	}
	to := target{host: normalizeName(name), port: port}
	if a, err := netip.ParseAddr(name); err == nil {
		to.addr = a
	}
	return New(r, nil).allowed(to)
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		entry   string
		yes, no string
	}{
		{"pypi.org", "pypi.org:443 pypi.org:80 PyPI.org:443 pypi.org.:443", "pypi.org:8080 files.pypi.org:443 xpypi.org:443 pypi.org.evil.example:443"},
		{"PyPI.org.:8443", "pypi.org:8443", "pypi.org:443 pypi.org:80"},
		{"*.hf.co:443", "cdn.hf.co:443 a.b.hf.co:443", "hf.co:443 xhf.co:443 cdn.hf.co:80 cdn.hf.co.evil.example:443"},
		{"registry", "registry:80", "registry.example:80"},
		{"_acme.a-b.example", "_acme.a-b.example:443", ""},
		{"10.0.0.5:8080", "10.0.0.5:8080 [::ffff:10.0.0.5]:8080", "10.0.0.5:80 10.0.0.6:8080"},
		{"10.0.0.5", "10.0.0.5:80 10.0.0.5:443", "10.0.0.5:81"},
		{"10.1.0.0/16", "10.1.2.3:443", "10.2.0.1:443"},
		{"10.1.0.0/16:5000", "10.1.2.3:5000", "10.1.2.3:443"},
		{"10.1.2.3/8", "10.9.9.9:443", "11.0.0.1:443"},
		{"0.0.0.0/0", "93.184.215.14:443", "127.0.0.1:443 169.254.169.254:80 10.0.0.1:443 192.168.0.1:80 100.64.0.1:80 0.0.0.0:80 224.0.0.1:80"},
		{"127.0.0.0/8:6000", "127.0.0.1:6000 127.9.9.9:6000", "127.0.0.1:80"},
		{"126.0.0.0/7", "126.0.0.1:80", "127.0.0.1:80"},
		{"168.63.0.0/16", "168.63.129.17:80", "168.63.129.16:80"},
		{"168.63.129.16", "168.63.129.16:80", ""},
		{"169.254.169.254", "169.254.169.254:80", "169.254.169.253:80"},
		{"::1", "[::1]:80", "[::2]:80 127.0.0.1:80"},
		{"[::1]:99", "[::1]:99", "[::1]:80"},
		{"2600::/12", "[2606::1]:443", "[fe80::1]:443"},
		{"[2600::/12]:99", "[2606::1]:99", "[2606::1]:443"},
		{"::/0", "[2606::1]:443", "[::1]:443 [fd00::1]:443 [fe80::1]:443 [64:ff9b::7f00:1]:443 [64:ff9b::a9fe:a9fe]:80 1.1.1.1:443"},
		{"fd00::/8", "[fd12::1]:443", "[fc00::1]:443"},
	} {
		r, err := Parse([]string{"other.example", c.entry})
		if err != nil {
			t.Error(err)
			continue
		}
		for host := range strings.FieldsSeq(c.yes) {
			if !allows(t, r, host) {
				t.Errorf("%s does not allow %s", c.entry, host)
			}
		}
		for host := range strings.FieldsSeq(c.no) {
			if allows(t, r, host) {
				t.Errorf("%s allows %s", c.entry, host)
			}
		}
	}
}

func TestBadRules(t *testing.T) {
	for _, entry := range []string{
		"", "*", "*.", "*:443", "a.*.b", "*a.b", "http://pypi.org", "pypi.org/simple", "pypi.org:", "pypi.org:0", "pypi.org:65536", "pypi.org:+5", "pypi.org:x",
		"[pypi.org]:80", "[::1", "[::1]80", "-a.b", "a-.b", "a..b", ".a.b", "a b", "käse.example", "fe80::1%eth0", "10.0.0.0/33", "10.0.0", "1", "0x7f.1", "::ffff:10.0.0.0/104",
		strings.Repeat("a", 64) + ".b", strings.Repeat("a.", 127) + "b", "a\nb",
	} {
		if r, err := Parse([]string{entry}); err == nil {
			t.Errorf("%q is parsed as %+v", entry, r.entries)
		} else if !strings.Contains(err.Error(), strconv.Quote(entry)) {
			t.Errorf("%q: the error does not name it: %v", entry, err)
		}
	}
}

func TestLocal(t *testing.T) {
	for entry, want := range map[string]bool{
		"localhost": false, "127.0.0.1:80": true, "::1": true, "[0:0::1]:5": true, "127.9.0.0/16": true, "10.0.0.1": false, "0.0.0.0/0": false,
		"0.0.0.0:80": true, "0.0.0.0/8": true, "0.0.0.0/31": true, "0.0.0.2": false, "[::]:80": true, "::ffff:0.0.0.0": true, "::/0": false, "::2": false,
	} {
		r, err := Parse([]string{"pypi.org", entry})
		if err != nil || r.AllowsLoopback() != want {
			t.Errorf("%s: %v, want %t", entry, err, want)
		}
	}
}

// FuzzRules checks that an address that is not public is allowed only by an entry in its block, and that no entry allows everything.
func FuzzRules(f *testing.F) {
	for _, seed := range []string{"pypi.org", "*.hf.co:443", "10.0.0.5:8080", "0.0.0.0/0:22", "::/0", "[::1]:5", "127.0.0.0/8", "64:ff9b::/96"} {
		f.Add(seed, []byte{127, 0, 0, 1}, uint16(443))
	}
	f.Fuzz(func(t *testing.T, text string, raw []byte, port uint16) {
		e, err := parseEntry(text)
		if err != nil {
			return
		}
		r := &Rules{entries: []entry{e}}
		if r.allowsName("no.entry.names.this.example", port) && !strings.HasSuffix("no.entry.names.this.example", strings.TrimPrefix(e.name, "*")) {
			t.Errorf("%q allows an unrelated name", text)
		}
		a, ok := netip.AddrFromSlice(raw)
		if !ok || !r.allowsAddress(a, port) {
			return
		}
		if block := specialBlock(a.Unmap()); block.IsValid() && !block.Contains(e.prefix.Addr()) {
			t.Errorf("%q allows %s", text, a)
		}
		if !e.matchesPort(port) {
			t.Errorf("%q allows port %d", text, port)
		}
	})
}
