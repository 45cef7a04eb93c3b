//go:build unix

package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/cli/app"
)

// runInterrupted runs a command that gets a SIGINT when the server has executed its request, but before the response to the request that ends
// with call.
func runInterrupted(t *testing.T, call string, args ...string) (s *apitest.Server, status int, stderr string) {
	t.Helper()
	t.Setenv("MUSTER_CONFIG", filepath.Join(t.TempDir(), "context.json"))
	s = apitest.Start(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, call) {
				if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
					t.Error(err)
				}
			}
		})
	})
	t.Setenv("MUSTER_SERVER", s.URL)
	t.Setenv("MUSTER_TOKEN", apitest.AdminToken)
	s.ConnectWorker(t, "w1")
	a, _, errs := newApp("")
	status = a.Run(t.Context(), a.commands(), append([]string{"muster"}, args...))
	return s, status, errs.String()
}

func TestInterruptDuringSubmitCancelsTheJob(t *testing.T) {
	s, status, stderr := runInterrupted(t, "/jobs", "run", "--gpus", "1", "--", "true")
	job, err := s.Client(t).Job(t.Context(), 1)
	if err != nil || job.State != muster.JobCancelled || status != app.ExitCancelled {
		t.Errorf("the job is %s (%v), the exit status %d: %s", job.State, err, status, stderr)
	}
}

func TestInterruptDuringDrainReportsThatItContinues(t *testing.T) {
	_, status, stderr := runInterrupted(t, "/drain", "workers", "drain", "name-of-w1")
	if want := "the drain continues: muster workers resume name-of-w1 undoes it\n"; stderr != want || status != app.ExitCancelled {
		t.Errorf("the exit status is %d: %q", status, stderr)
	}
}
