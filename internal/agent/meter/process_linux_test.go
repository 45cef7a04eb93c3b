package meter

import "testing"

func TestParseStat(t *testing.T) {
	// As the kernel prints it, with a name that tries to look like the rest.
	line := "4711 (a) R 1 (b) S 4700 4711 4711 34816 4711 4194304 100 0 0 0 250 50 7 3 20 0 5 0 123456 1000000 200 18446744073709551615"
	p, ok := parseStat(4711, []byte(line))
	if !ok || p.parent != 4700 || p.group != 4711 || p.session != 4711 || p.threads != 5 || p.start != 123456 || p.cpu.Seconds() != 3 {
		t.Errorf("got %+v, %v", p, ok)
	}
	for _, bad := range []string{"", "4711", "4711 (a", "4711 (a) S 1 2 3"} {
		if _, ok := parseStat(1, []byte(bad)); ok {
			t.Errorf("%q is no process", bad)
		}
	}
	if _, ok := parseStat(4711, []byte("1 (z) Z"+line[len("4711 (a) R 1 (b) S"):])); ok {
		t.Error("a zombie uses nothing")
	}
}

func TestParseIO(t *testing.T) {
	r, w := parseIO([]byte("rchar: 10\nwchar: 20\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n"))
	if r != 4096 || w != 8192 {
		t.Errorf("got %d, %d", r, w)
	}
	if r, w = parseIO(nil); r != -1 || w != -1 {
		t.Errorf("of nothing got %d, %d", r, w)
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 2 3 4"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := parseStat(1, b); ok && p.pid != 1 {
			t.Errorf("%q became process %d", b, p.pid)
		}
		if m := parseStatm(b); m < 0 {
			t.Errorf("%q became %d bytes", b, m)
		}
	})
}

// TestATaskOfAnotherMachineHasNoProcesses is one whose container engine is elsewhere.
func TestATaskOfAnotherMachineHasNoProcesses(t *testing.T) {
	table := newProcessTable([]process{{pid: 1}, {pid: 2}, {pid: 30, parent: 2}})
	if mine := table.tree(0, 0); mine != nil {
		t.Errorf("it has %+v", mine)
	}
}
