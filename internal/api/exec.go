package api

import (
	"net/http"

	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/execrelay"
)

func (s *server) execTask(w http.ResponseWriter, r *http.Request, in *rest.TaskPath) error {
	release, err := s.limits.AcquireStream(activeKeyOf(r.Context()))
	if err != nil {
		return rest.TooMany(err)
	}
	defer release()
	target, err := execrelay.NewTarget(r, principalOf(r.Context()), s.Store, s.resolveWorker, in.ID())
	if err == nil {
		err = s.Exec.Serve(w, r, target)
	}
	return err
}
