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

// pathIPFS is the path of IPFS gateways. It serves files of jobs.
const pathIPFS = "/ipfs/"

func (s *server) contentRoutes() {
	stream(s, route{id: "get-content", method: http.MethodGet, path: pathIPFS + "{cid}", tag: "artifacts",
		summary: "Download a file that a result refers to as ipfs://{cid}, or ranges of it", verb: auth.ReadJobs, contentType: anyType}, s.getContent)
}

type contentInput struct {
	CID string `path:"cid" maxLength:"200" example:"QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o" doc:"CIDv0, or the CIDv1 of the same file"`
}

// contentCandidates is the number of files with one identifier that are read at once from the store.
const contentCandidates = 20

// getContent serves a file of the newest job that has it and that the caller may read. It verifies the identifier that a worker reported.
func (s *server) getContent(w http.ResponseWriter, r *http.Request, in *contentInput) error {
	id, err := cid.Canonical(in.CID)
	if err != nil {
		return err
	}
	q := store.ContentQuery{CID: id, Project: principalOf(r.Context()).Project, Limit: contentCandidates}
	mismatchedJob, missingErr := muster.JobID(0), error(nil)
	for {
		candidates, err := s.Store.Contents(r.Context(), q)
		switch {
		case err != nil:
			return err
		case len(candidates) > 0:
		case missingErr != nil:
			return missingErr
		case mismatchedJob != 0:
			return muster.Errorf(muster.NotFound, "no job has a file ipfs://%s: the file that job %d reported under this identifier does not match it", id, mismatchedJob)
		default:
			return muster.Errorf(muster.NotFound, "no job has a file ipfs://%s", id)
		}
		q.After = candidates[len(candidates)-1]
		slices.SortStableFunc(candidates, func(a, b store.Content) int { return cmp.Compare(b.Verification, a.Verification) }) // verified ones first
		for i := range candidates {
			switch err := s.authorizeJob(r.Context(), candidates[i].Job, auth.ReadJobs); {
			case muster.CodeOf(err) == muster.NotFound:
				continue
			case err != nil:
				return err
			}
			ok, err := s.VerifyCID(r.Context(), candidates[i])
			switch {
			case muster.CodeOf(err) == muster.NotFound:
				missingErr = err
			case err != nil:
				return err
			case ok:
				name := candidates[i].Name
				return s.serveBlob(w, r, &blobResponse{Blob: store.Blob{SHA256: candidates[i].SHA256, Size: candidates[i].Size}, name: path.Base(name), mediaType: contentType(name)})
			default:
				mismatchedJob = candidates[i].Job
			}
		}
	}
}
