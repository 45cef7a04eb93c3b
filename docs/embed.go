// Package docs has those pages that the server serves.
package docs

import _ "embed" // the schema

// JobSchema is the JSON Schema (2020-12) of a job file. It is generated: see internal/gen/jobschema.
//
//go:embed job.schema.json
var JobSchema []byte
