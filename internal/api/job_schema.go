package api

import (
	"net/http"

	"github.com/muster-dev/muster/docs"
	"github.com/muster-dev/muster/internal/api/streaming"
)

const pathJobSchema = "/schemas/job.json"

func (s *server) schemaRoutes() {
	stream(s, route{id: "get-job-schema", method: http.MethodGet, path: apiPath(pathJobSchema), tag: "jobs", public: true, contentType: jsonSchemaType,
		summary: "Show the JSON Schema (2020-12) of a job file, for editors"}, getJobSchema)
}

func getJobSchema(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
	h := w.Header()
	h.Set("Content-Type", jsonSchemaType)
	h.Set("Cache-Control", "max-age=300")
	h.Set("Access-Control-Allow-Origin", "*")              // it is public, and editors in browsers read it
	_, _ = streaming.NewWriter(w, r).Write(docs.JobSchema) // a caller who left does not read it
	return nil
}
