package xid

import (
	"strings"
	"testing"
	"time"
)

func TestXID(t *testing.T) {
	for _, tc := range []struct{ line, bus, instance, why string }{
		{"NVRM: Xid (PCI:0000:a1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "0000:a1:00", "", "XID 79: GPU has fallen off the bus"},
		{"NVRM: Xid (PCI:0000:3B:00): 48, pid=1234, name=python3, DBE (double bit error) ECC Error", "0000:3b:00", "", "XID 48: DBE (double bit error) ECC Error"},
		{"NVRM: Xid (PCI:0000:9b:00): 119, pid=1818990, name=python3, Timeout after 6s of waiting for RPC response from GPU0 GSP!", "0000:9b:00", "", "XID 119: Timeout after 6s of waiting for RPC response from GPU0 GSP!"},
		{"NVRM: Xid (PCI:0000:01:00 GPU-I:05): 95, pid=7, name=x, Uncontained ECC error", "0000:01:00", "5", "XID 95: Uncontained ECC error"},
		{"NVRM: GPU 0000:a1:00.0: GPU has fallen off the bus.", "0000:a1:00", "", "XID 79: GPU has fallen off the bus"},
		{"NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "0000:01:00", "", "XID 154: GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"},
		{"NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "", "", ""},
		{"NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter", "", "", ""},
		{"NVRM: Xid (PCI:0000:cb:00): 31, pid=9, name=python, Ch 00000008, intr 10000000. MMU Fault", "", "", ""},
		{"NVRM: Xid (PCI:0000:cb:00): 94, pid=1234, name=python3, Contained ECC error", "", "", ""},
		{"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.161.07", "", "", ""},
	} {
		x, ok := Parse(tc.line)
		if ok != (tc.why != "") || x.bus != tc.bus || x.instance != tc.instance || x.Reason != tc.why {
			t.Errorf("%q: %+v, %v", tc.line, x, ok)
		}
	}
	x := Fault{bus: "0000:01:00", instance: "5"}
	for bus, want := range map[string]bool{"0000:01:00.0 5/0": true, "0000:01:00.0 6/0": false, "0000:01:00.0 ": true, "0000:02:00.0 5/0": false, " ": false} {
		b, i, _ := strings.Cut(bus, " ")
		if x.Matches(b, i) != want {
			t.Errorf("a fault of %+v is of %q: %v", x, bus, !want)
		}
	}
}

// TestKernelLog reads this machine's, where that is allowed.
func TestKernelLog(t *testing.T) {
	kernel := Open()
	if kernel == nil {
		t.Skip("this user may not read the kernel's log")
	}
	defer kernel.Close()
	seen := 0
	kernel.Read(func(_ string, age time.Duration) {
		if seen++; age < -time.Minute { // the clock of the log is not adjusted, and drifts by seconds per day
			t.Errorf("a message from the future: %s", -age)
		}
	})
	if seen == 0 {
		t.Skip("the kernel's log is empty")
	}
	kernel.Read(func(message string, age time.Duration) {
		if age > time.Minute {
			t.Errorf("%q is reported twice", message)
		}
	})
}

func FuzzXID(f *testing.F) {
	f.Add("4,891,13520982,-;NVRM: Xid (PCI:0000:a1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
	f.Fuzz(func(t *testing.T, line string) {
		_, message, _ := strings.Cut(line, ";")
		if x, ok := Parse(message); ok && (x.bus == "" || !strings.HasPrefix(x.Reason, "XID ") || len(x.Reason) > 300) {
			t.Errorf("%+v", x)
		}
	})
}
