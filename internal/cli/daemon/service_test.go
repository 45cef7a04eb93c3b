package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/testkit"
)

// TestRestarting checks which jobs of systemd are a restart of the service, with a systemctl that prints them.
func TestRestarting(t *testing.T) {
	const unit = "muster-worker.service"
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("MANAGERPID", "")
	for _, tc := range []struct {
		name, unit, script string
		want               bool
	}{
		{"a restart", unit, "echo '  17 muster-worker.service restart running'", true},
		{"among others", unit, "echo '16 a.service start waiting'; echo '17 muster-worker.service restart waiting'", true},
		{"a stop", unit, "echo '17 muster-worker.service stop running'", false},
		{"another unit", unit, "echo '17 muster-worker@2.service restart running'", false},
		{"no jobs", unit, "echo 'No jobs running.'", false},
		{"a failure", unit, "echo '17 muster-worker.service restart running'; exit 1", false},
		{"no service", "", "echo '17  restart running'", false},
		{"the system's manager", unit, `case "$*" in *--user*) ;; *) echo '17 muster-worker.service restart running';; esac`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\n"+tc.script+"\n"), 0o700))
			if got := restarting(tc.unit); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
	t.Setenv("MANAGERPID", "1")
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho \"$@\" > "+dir+"/args\n"), 0o700))
	restarting(unit)
	if b, err := os.ReadFile(filepath.Join(dir, "args")); err != nil || !strings.Contains(string(b), "--user") {
		t.Errorf("the user's manager is asked with %q (%v)", b, err)
	}
}

// TestRestartWithoutAWorker checks that a restart stops a worker that has not started yet.
func TestRestartWithoutAWorker(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(UnitVariable, "w.service")
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho 1 w.service restart running\n"), 0o700))
	r := make(restarts)
	if r.intercept() {
		t.Error("a worker that does not run left its tasks")
	}
	received := make(chan struct{})
	go func() {
		<-r
		close(received)
	}()
	if !r.intercept() {
		t.Error("a worker that runs did not leave its tasks")
	}
	<-received
}
