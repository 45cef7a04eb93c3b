package api

import (
	"net/http"
	"path"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/cid"
)

// pathIPFS is where IPFS gateways have files; here are those of jobs.
const pathIPFS = "/ipfs/"

func (s *server) contentRoutes() {
	stream(s, route{id: "get-content", method: http.MethodGet, path: pathIPFS + "{cid}", tag: "artifacts",
		summary: "Download the file that a result calls ipfs://{cid}, or ranges of it", verb: auth.ReadJobs, answers: "application/octet-stream"}, s.getContent)
}

type contentInput struct {
	CID string `path:"cid" maxLength:"200" example:"QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o" doc:"CIDv0, or the CIDv1 of the same file"`
}

// getContent serves a file of the newest job that has it and that the caller may see.
func (s *server) getContent(w http.ResponseWriter, r *http.Request, in *contentInput) error {
	id, err := cid.Canonical(in.CID)
	if err != nil {
		return err
	}
	found, err := s.Store.Contents(r.Context(), id)
	if err != nil {
		return err
	}
	for i := range found {
		switch err := s.mayTouch(r.Context(), found[i].Job, auth.ReadJobs); {
		case muster.CodeOf(err) == muster.NotFound:
			continue
		case err != nil:
			return err
		}
		kind, ok := shownAs[strings.ToLower(path.Ext(found[i].Name))]
		if !ok {
			kind = "application/octet-stream"
		}
		return s.serveBlob(w, r, found[i].SHA256, kind, path.Base(found[i].Name))
	}
	return muster.Errorf(muster.NotFound, "no job has a file ipfs://%s", id)
}
