package procfs

import (
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	// As the kernel prints it, with a name that looks like the rest.
	line := "4711 (a) R 1 (b) S 4700 4711 4711 34816 4711 4194304 100 0 0 0 250 50 7 3 20 0 5 0 123456 1000000 200 18446744073709551615"
	p, ok := parseStat(4711, []byte(line))
	if !ok || p.State != 'S' || p.Parent != 4700 || p.Group != 4711 || p.Session != 4711 || p.Threads != 5 || p.Start != 123456 || p.CPU.Seconds() != 3 {
		t.Errorf("got %+v, %v", p, ok)
	}
	for _, bad := range []string{"", "4711", "4711 (a", "4711 (a) S 1 2 3"} {
		if _, ok := parseStat(1, []byte(bad)); ok {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestParseIO(t *testing.T) {
	r, w := parseIO([]byte("rchar: 10\nwchar: 20\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n"))
	if r != 4096 || w != 8192 {
		t.Errorf("got %d, %d", r, w)
	}
	if r, w = parseIO(nil); r != -1 || w != -1 {
		t.Errorf("an empty file returns %d, %d", r, w)
	}
}

func TestThisProcess(t *testing.T) {
	self := os.Getpid()
	st, ok := ReadStat(self)
	if !ok || st.PID != self || st.Parent != os.Getppid() || st.Threads == 0 || st.Start == 0 || Resident(self) == 0 {
		t.Errorf("got %+v, %v", st, ok)
	}
	if r, w := IO(self); r < 0 || w < 0 {
		t.Errorf("it read %d and wrote %d bytes", r, w)
	}
	if args := Args(self); len(args) == 0 || string(args[0]) != os.Args[0] {
		t.Errorf("its command line is %q", args)
	}
	found := false
	for _, st := range ReadStats() {
		found = found || st.PID == self
	}
	if !found {
		t.Error("it is not among all processes")
	}
	if _, ok := ReadStat(1 << 30); ok || Environ(1<<30) != nil {
		t.Error("a missing process is found")
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 2 3 4"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := parseStat(1, b); ok && p.PID != 1 {
			t.Errorf("%q is process %d", b, p.PID)
		}
		if m := parseStatm(b); m < 0 {
			t.Errorf("%q has %d bytes", b, m)
		}
	})
}
