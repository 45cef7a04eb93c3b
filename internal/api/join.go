package api

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) joinRoutes() {
	handle(s, route{id: "join-worker", method: http.MethodPost, path: link.PathJoin, tag: "workers",
		summary: "Exchange a join token for a worker's own id and key", verb: auth.JoinWorkers}, s.joinWorker)
}

type joinInput struct{ Body link.JoinRequest }

func (s *server) joinWorker(ctx context.Context, in *joinInput) (*response[link.Joined], error) {
	worker := muster.WorkerID("w-" + strings.ToLower(rand.Text()[:12]))
	key := store.Key{Name: in.Body.Name, Role: string(auth.Worker), Worker: worker, CreatedAt: muster.NewTime(time.Now())}
	secret, err := s.makeKey(ctx, &key)
	if err != nil {
		return nil, err
	}
	return respond(link.Joined{Worker: worker, Key: secret}), nil
}
