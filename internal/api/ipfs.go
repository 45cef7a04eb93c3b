package api

import (
	"cmp"
	"net/http"
	"path"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/cid"
	"github.com/muster-dev/muster/internal/store"
)

// pathIPFS is where IPFS gateways have files; here are those of jobs.
const pathIPFS = "/ipfs/"

func (s *server) contentRoutes() {
	stream(s, route{id: "get-content", method: http.MethodGet, path: pathIPFS + "{cid}", tag: "artifacts",
		summary: "Download the file that a result calls ipfs://{cid}, or ranges of it", verb: auth.ReadJobs, answers: anyType}, s.getContent)
}

type contentInput struct {
	CID string `path:"cid" maxLength:"200" example:"QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o" doc:"CIDv0, or the CIDv1 of the same file"`
}

// contentsPage is how many files with one identifier are looked at together.
const contentsPage = 20

// getContent serves a file of the newest job that has it and that the caller may see. What a worker says of a file counts only when the file bears it out.
func (s *server) getContent(w http.ResponseWriter, r *http.Request, in *contentInput) error {
	id, err := cid.Canonical(in.CID)
	if err != nil {
		return err
	}
	q := store.ContentQuery{CID: id, Project: principalOf(r.Context()).Project, Limit: contentsPage}
	wrong, lost := muster.JobID(0), error(nil)
	for {
		found, err := s.Store.Contents(r.Context(), q)
		switch {
		case err != nil:
			return err
		case len(found) > 0:
		case lost != nil:
			return lost
		case wrong != 0:
			return muster.Errorf(muster.NotFound, "no job has a file ipfs://%s: what job %d calls so is another one", id, wrong)
		default:
			return muster.Errorf(muster.NotFound, "no job has a file ipfs://%s", id)
		}
		q.After = found[len(found)-1]
		slices.SortStableFunc(found, func(a, b store.Content) int { return cmp.Compare(b.Verification, a.Verification) }) // what needs no reading before
		for i := range found {
			switch err := s.mayTouch(r.Context(), found[i].Job, auth.ReadJobs); {
			case muster.CodeOf(err) == muster.NotFound:
				continue
			case err != nil:
				return err
			}
			ok, err := s.Prove(r.Context(), found[i])
			switch {
			case muster.CodeOf(err) == muster.NotFound:
				lost = err
			case err != nil:
				return err
			case ok:
				name := found[i].Name
				return s.serveBlob(w, r, &served{Blob: store.Blob{SHA256: found[i].SHA256, Size: found[i].Size}, name: path.Base(name), kind: contentType(name)})
			default:
				wrong = found[i].Job
			}
		}
	}
}
