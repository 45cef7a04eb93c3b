package daemon

import (
	"os"
	"strings"
	"testing"
)

func TestServerPrintsCommandsForOtherMachines(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for listen, want := range map[string]string{
		"127.0.0.1:8700":   "Other machines cannot connect: to allow that, use --listen :8700",
		"127.0.0.1:21100":  "use --listen :21100",
		"127.0.0.1:0":      "use --listen :8700",
		"localhost:8700":   "Other machines cannot connect",
		"[::1]:8700":       "Other machines cannot connect",
		":8700":            "--server http://" + name + ":8700 --token-file JOIN-TOKEN-FILE",
		"0.0.0.0:8700":     "--server http://" + name + ":8700 --token-file JOIN-TOKEN-FILE",
		"[::]:8700":        "--server http://" + name + ":8700 --token-file JOIN-TOKEN-FILE",
		"192.0.2.7:8700":   "--server http://known:8700 --token-file JOIN-TOKEN-FILE",
		"box.example:8700": "--server http://known:8700 --token-file JOIN-TOKEN-FILE",
	} {
		if got := remoteInstructions(listen, "http://known:8700"); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", listen, got, want)
		}
	}
}
