package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/doctor"
)

// bridges returns findings about the bridges with data in the user's data directory: those of muster bridge NAME and
// muster worker NAME.
func bridges() ([]doctor.Finding, error) {
	root, err := app.DataDir("", "")
	if err != nil {
		return nil, err
	}
	var found []doctor.Finding
	for _, pattern := range []string{"bridge/*", "bridge/*/each/*", "worker-*/bridge"} {
		dirs, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			for _, path := range bridge.FindOutboxes(dir) {
				found = append(found, bridgeFinding(root, path))
			}
		}
	}
	return found, nil
}

// bridgeFinding returns the finding of one outbox below root.
func bridgeFinding(root, path string) doctor.Finding {
	f := doctor.Finding{Group: doctor.System, Name: "bridge"}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		rel = path
	}
	parts := strings.Split(filepath.ToSlash(rel), "/") // bridge/NAME/… or worker-NAME/bridge/…
	command, suffix := "muster bridge "+parts[1], ""
	if name, dropIn := strings.CutPrefix(parts[0], "worker-"); dropIn {
		system, worker, named := strings.Cut(name, "-") // worker-NAME-WORKER has a worker name
		command = "muster worker " + system
		if named {
			suffix = " (" + worker + ")"
		}
	}
	jobs, running, err := bridge.CountPending(path)
	subject := command + suffix
	switch {
	case err != nil:
		f.Status, f.Found, f.Fix = doctor.Warning, fmt.Sprintf("cannot read the jobs of %s: %s", subject, err), "run the doctor as the user of the bridge"
	case running:
		f.Status, f.Found = doctor.OK, subject+" is running"
	case jobs > 0:
		f.Status, f.Found = doctor.Warning, fmt.Sprintf("%s is not running, and %d of its jobs have no final report yet", subject, jobs)
		f.Fix = "start it again with the same options: `" + command + "`"
	default:
		f.Status, f.Found = doctor.Note, subject+" is not running; all of its jobs are reported"
	}
	return f
}
