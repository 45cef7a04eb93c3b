package trainforge

import (
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

// The upload of the runner, whose entries are the task's artifacts by name. Of another one all files are artifacts, too, under their paths.
const (
	resultsField    = "results_zip"
	downloadTimeout = 30 * time.Minute // for a large body
)

func (g *Gateway) uploadResults(req *request) error {
	id := req.r.PathValue("id")
	t := g.task(req, id)
	if t == nil {
		if g.wasTask(id) {
			return req.reply(map[string]any{"success": true, "message": "Results uploaded successfully", "job_id": id, "size": 0, "path": ""})
		}
		return jobNotFound()
	}
	t.Worker().Touch(nil)
	u, err := receiveUpload(req.r, g.uploadsDir(), resultsField, maxResults)
	if err != nil {
		return err
	}
	defer u.close()
	if u.file == nil {
		return &statusError{http.StatusBadRequest, "results_zip is required"}
	}
	g.state(t).touch()
	if err := storeArtifacts(req.r.Context(), t, u); err != nil && muster.CodeOf(err) != muster.Conflict {
		return err
	}
	return req.reply(map[string]any{"success": true, "message": "Results uploaded successfully", "job_id": id, "size": u.size, "path": "results/" + id + ".zip"})
}

func storeArtifacts(ctx context.Context, t *fleet.Task, u *upload) error {
	found, err := archive.Entries(u.file, u.size, resultLimits)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if strings.HasPrefix(name, project.MetaDir+"/") || name == project.Runner || name == "project.zip" {
			continue // what a worker packs of the folder that it was given
		}
		r, err := found[name].Open()
		if err != nil {
			return muster.Errorf(muster.Invalid, "the entry %q cannot be read: %w", lenient.Text(name, 100), err)
		}
		// Entries has checked the sum of the sizes that the archive declares.
		err = t.AddArtifact(ctx, strings.TrimPrefix(name, project.TaskDir+"/"), r, int64(found[name].UncompressedSize64))
		_ = r.Close() // it was read
		if err != nil {
			return err
		}
	}
	return nil
}

// results is all artifacts of a job as one archive.
func (g *Gateway) results(req *request) error {
	c, _, tasks, err := g.findJob(req, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(g.uploadsDir(), "results-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // at the next start at the latest
	defer f.Close()
	z := archive.NewWriter(f, resultLimits.Bytes)
	n := 0
	for _, a := range artifacts(tasks) {
		if n++; n > resultLimits.Files {
			break
		}
		if err := z.Stream(a.path, func(w io.Writer) error { return c.ReadArtifact(req.r.Context(), a.task, a.Artifact, w) }); err != nil {
			return err
		}
	}
	if n == 0 {
		return &statusError{http.StatusNotFound, "No results found for this job"}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return req.sendFile(f, "results.zip")
}

type jobArtifact struct {
	muster.Artifact

	task muster.TaskID
	path string // under which the job shows it
}

// artifacts lists those of all tasks; those of a distributed job have the rank in front.
func artifacts(tasks []muster.Task) []jobArtifact {
	var list []jobArtifact
	for _, t := range tasks {
		for _, a := range t.Artifacts {
			name := a.Name
			if len(tasks) > 1 {
				name = path.Join("rank-"+itoa(t.Index), name)
			}
			list = append(list, jobArtifact{a, t.ID, name})
		}
	}
	return list
}

func (g *Gateway) resultFiles(req *request) error {
	id := req.r.PathValue("id")
	_, _, tasks, err := g.findJob(req, id)
	if err != nil {
		return err
	}
	list := []map[string]any{}
	for _, a := range artifacts(tasks) {
		list = append(list, map[string]any{"name": path.Base(a.path), "path": a.path, "size": a.Size, "sha256": a.SHA256})
	}
	return req.reply(map[string]any{"success": true, "job_id": id, "files": list, "count": len(list)})
}

func (g *Gateway) resultFile(req *request) error {
	c, _, tasks, err := g.findJob(req, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	want := req.r.PathValue("path")
	for _, a := range artifacts(tasks) {
		if a.path == want {
			req.w.Header().Set("Content-Type", "application/octet-stream")
			req.w.Header().Set("Content-Disposition", "attachment")
			ctx, cancel := context.WithTimeout(req.r.Context(), downloadTimeout)
			defer cancel()
			if err := c.ReadArtifact(ctx, a.task, a.Artifact, req.w); err != nil {
				panic(http.ErrAbortHandler) // a part was sent: the caller sees that it broke off
			}
			return nil
		}
	}
	return &statusError{http.StatusNotFound, "File not found"}
}
