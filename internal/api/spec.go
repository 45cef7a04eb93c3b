package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/secrets"
	"github.com/muster-dev/muster/internal/signedjob"
	"github.com/muster-dev/muster/internal/store"
)

// SpecInput is a job spec as it was sent. Package spec parses it, because its errors
// have lines and columns.
type SpecInput struct {
	ContentType string `header:"Content-Type" hidden:"true"`
	RawBody     []byte `contentType:"application/yaml"`
}

// flatSpec is the short form of a spec with a single task.
type flatSpec struct {
	Project  string            `json:"project,omitempty"`
	Priority *int              `json:"priority,omitempty" minimum:"0" maximum:"100"`
	Labels   map[string]string `json:"labels,omitempty"`
	Notify   []muster.Notify   `json:"notify,omitempty"`
	muster.TaskSpec
}

func (s *server) specBody() *huma.RequestBody {
	schemas := s.router.Document().Components.Schemas
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: &huma.Schema{AnyOf: []*huma.Schema{
			schemas.Schema(reflect.TypeFor[muster.Spec](), true, ""),
			schemas.Schema(reflect.TypeFor[flatSpec](), true, ""),
		}}},
	}}
}

// readSpec parses a spec that the server can run: valid, normalized, without local
// files, in a project that the caller may use.
func (s *server) readSpec(ctx context.Context, in SpecInput) (*muster.Spec, error) {
	if t, _, err := mime.ParseMediaType(in.ContentType); in.ContentType != "" && (err != nil || !isSpecType(t)) {
		return nil, muster.Errorf(muster.Invalid, "unsupported content type %q: send a job spec as application/json or application/yaml", in.ContentType)
	}
	specs, err := s.parseSpecs(ctx, in.RawBody)
	if err != nil {
		return nil, err
	}
	if len(specs) != 1 {
		return nil, muster.Errorf(muster.InvalidSpec, "the request has %d jobs: send one job per request", len(specs))
	}
	spec := specs[0]
	p := principalOf(ctx)
	if spec.Project == "" {
		spec.Project = p.Project
	}
	spec = spec.Normalize()
	caller.Audit(ctx).Project = spec.Project
	if err := auth.Can(p, auth.SubmitJobs, auth.Object{Project: spec.Project}); err != nil {
		return nil, err
	}
	if errs := secrets.Require(s.Secrets, spec); len(errs) > 0 {
		err := muster.Errorf(muster.InvalidSpec, "the server cannot run the job spec: %s", errs[0])
		err.Fields = errs
		return nil, err
	}
	if err := s.checkSignature(ctx, spec); err != nil {
		return nil, err
	}
	if err := s.sealNotifications(spec); err != nil {
		return nil, err
	}
	return spec, s.checkFiles(ctx, spec)
}

// checkSignature sets which key signed the stages, and rejects a signature that does not match the job: workers would, later. Which keys
// are trusted is for the workers to say.
func (s *server) checkSignature(ctx context.Context, spec *muster.Spec) error {
	for i := range spec.Tasks {
		spec.Tasks[i].SignedBy = ""
	}
	if spec.Signature == nil {
		return nil
	}
	signed, err := signedjob.Open(spec.Signature, time.Now())
	if err == nil {
		asSigned := &muster.Spec{Project: signed.Project, Name: signed.Name, Tasks: signed.Tasks}
		var wrong []muster.FieldError
		wrong, err = s.Kinds.Admit(asSigned, func() ([]muster.Worker, error) { return s.Engine.Workers(ctx) })
		if err == nil && len(wrong) > 0 {
			err = errors.New(wrong[0].String())
		}
		if err == nil {
			err = signedjob.Compare(asSigned, spec)
		}
	}
	if err != nil {
		field := muster.FieldError{Path: "signature", Message: err.Error(), Hint: "sign the job again with muster submit --sign, or remove signature"}
		rejected := muster.Errorf(muster.InvalidSpec, "the server cannot run the job spec: %s", field)
		rejected.Fields = []muster.FieldError{field}
		return rejected
	}
	for i := range spec.Tasks {
		spec.Tasks[i].SignedBy = signed.Fingerprint
	}
	return nil
}

// checkGraces rejects a disconnect.grace that is too short for a connected worker. A lease starts at the last heartbeat that the server
// answered, up to one interval before an attempt starts, and the next answer may be late. Workers with longer intervals than the server's get
// only tasks with a longer grace: see package placement.
func (s *server) checkGraces(spec *muster.Spec) (errs []muster.FieldError) {
	minGrace := muster.MinGraceHeartbeats * s.Heartbeat
	for i := range spec.Tasks {
		if d := spec.Tasks[i].Disconnect.Grace; d > 0 && d < minGrace {
			errs = append(errs, muster.FieldError{
				Path: "tasks[" + strconv.Itoa(i) + "].disconnect.grace",
				Message: fmt.Sprintf("%s is shorter than %s, %d times the server's heartbeat interval of %s: a connected worker could lose the task if one answer of the server is late",
					d, minGrace, muster.MinGraceHeartbeats, s.Heartbeat),
				Hint: "use at least " + minGrace.String() + ", or start the server with a shorter --heartbeat",
			})
		}
	}
	return errs
}

const (
	// parseBudget is the number of bytes that concurrent parses may allocate, which is the maximum of one spec. A parse is
	// estimated to allocate 3 MB and 600 bytes per byte of the spec.
	parseBudget   = 50_000_000
	parseBaseCost = 3_000_000
	parseByteCost = 600
	// parseWait is how long a request waits for the budget.
	parseWait = 20 * time.Second
)

// parseSpecs parses specs within the budget. If the client leaves, the parse ends at its next step.
func (s *server) parseSpecs(ctx context.Context, data []byte) ([]*muster.Spec, error) {
	weight := min(parseBaseCost+parseByteCost*int64(len(data)), parseBudget)
	waitCtx, cancel := context.WithTimeout(ctx, parseWait)
	defer cancel()
	if err := s.parseBudget.Acquire(waitCtx, weight); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the server is busy parsing other job specs: try again: %w", err)
	}
	defer s.parseBudget.Release(weight)
	var admitErr error
	specs, err := s.Parse(ctx, data, "the request", func(spec *muster.Spec) []muster.FieldError {
		fieldErrs, err := s.Kinds.Admit(spec, func() ([]muster.Worker, error) { return s.Engine.Workers(ctx) })
		admitErr = errors.Join(admitErr, err)
		return append(fieldErrs, s.checkGraces(spec)...)
	})
	return specs, cmp.Or(admitErr, err)
}

func isSpecType(t string) bool {
	switch t {
	case "application/json", "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml":
		return true
	default:
		return false
	}
}

// checkFiles rejects local files and folders that were not uploaded.
func (s *server) checkFiles(ctx context.Context, spec *muster.Spec) error {
	var fieldErrs []muster.FieldError
	for i, t := range spec.Tasks {
		field := "tasks[" + strconv.Itoa(i) + "]"
		if t.Script != nil && t.Script.File != "" {
			fieldErrs = append(fieldErrs, muster.FieldError{Path: field + ".script.file", Message: "the server cannot read " + strconv.Quote(t.Script.File),
				Hint: "send the script's text, or use muster submit"})
		}
		if reason, err := s.checkStdin(ctx, t.Stdin); err != nil {
			return err
		} else if reason != "" {
			fieldErrs = append(fieldErrs, muster.FieldError{Path: field + ".stdin", Message: reason, Hint: "upload it first, or use muster submit"})
		}
		if t.Files == "" {
			continue
		}
		sum, ok := strings.CutPrefix(t.Files, "sha256:")
		if !ok {
			fieldErrs = append(fieldErrs, muster.FieldError{Path: field + ".files", Message: "the server cannot read the folder " + strconv.Quote(t.Files),
				Hint: "upload it, or use muster submit"})
			continue
		}
		reason, err := s.checkFolder(ctx, sum)
		if err != nil {
			return err
		}
		if reason != "" {
			fieldErrs = append(fieldErrs, muster.FieldError{Path: field + ".files", Message: reason, Hint: "upload it first"})
		}
	}
	if len(fieldErrs) == 0 {
		return nil
	}
	err := muster.Errorf(muster.InvalidSpec, "the server cannot run the job spec: %s", fieldErrs[0])
	err.Fields = fieldErrs
	return err
}

// checkStdin returns what is wrong with the standard input of a stage, or "". It keeps its blob for the job.
func (s *server) checkStdin(ctx context.Context, stdin string) (reason string, err error) {
	sum, ok := strings.CutPrefix(stdin, "sha256:")
	switch {
	case stdin == "":
		return "", nil
	case !ok:
		return "the server cannot read the file " + strconv.Quote(stdin), nil
	}
	size, err := s.authorizeBlob(ctx, sum)
	if err == nil {
		size, err = s.Blobs.Touch(ctx, sum)
	}
	if code := muster.CodeOf(err); err != nil && (code == muster.NotFound || code == muster.Invalid) {
		return "the standard input sha256:" + sum + " was not uploaded", nil
	}
	if size > muster.MaxStdin {
		return "the standard input is larger than " + muster.Size(muster.MaxStdin).String(), nil
	}
	return "", err
}

// checkFolder returns what is wrong with a folder of a job, or "": the server must have it, and the caller must have access to
// all of its files, which the list of files alone does not prove.
func (s *server) checkFolder(ctx context.Context, sum string) (reason string, err error) {
	notUploaded := "the folder sha256:" + sum + " was not uploaded"
	size, err := s.authorizeBlob(ctx, sum)
	if err == nil {
		_, err = s.statBlob(ctx, sum, size)
	}
	if code := muster.CodeOf(err); err != nil && (code == muster.NotFound || code == muster.Invalid) {
		return notUploaded, nil
	}
	if err != nil {
		return "", err
	}
	files, err := s.BlobNeeds.Files(ctx, sum)
	switch code := muster.CodeOf(err); {
	case err == nil:
	case code == muster.NotFound:
		return notUploaded, nil
	case code == muster.Invalid || code == muster.TooLarge:
		return err.Error(), nil
	default:
		return "", err
	}
	sums := make([]string, len(files))
	for i := range files {
		sums[i] = files[i].SHA256
	}
	var ungranted []string
	if principalOf(ctx).Project != "" {
		ungranted, err = s.Grants.Ungranted(ctx, holderOf(principalOf(ctx)), sums)
	}
	if err == nil && len(ungranted) == 0 {
		ungranted, err = s.touchFolder(ctx, sum, sums)
	}
	if err == nil && len(ungranted) > 0 {
		reason = "the file " + ungranted[0] + " of the folder sha256:" + sum + " was not uploaded"
	}
	return reason, err
}

const (
	// touchedTTL is how long the files of a folder are not touched again. It must be much less than retention.MinGrace.
	touchedTTL        = 10 * time.Minute
	maxTouchedFolders = 10_000
)

// touchFolder keeps the files of a folder for the job that is about to refer to them, and returns the first missing one, if any.
func (s *server) touchFolder(ctx context.Context, sum string, files []string) (missing []string, err error) {
	if at, ok := s.touchedFolders.Get(sum); ok && time.Since(at) < touchedTTL {
		return nil, nil
	}
	for _, file := range append(files, sum) {
		switch _, err := s.Blobs.Touch(ctx, file); muster.CodeOf(err) {
		case muster.NotFound, muster.Invalid:
			return []string{file}, nil
		default:
			if err != nil {
				return nil, err
			}
		}
	}
	s.touchedFolders.Put(sum, time.Now())
	return nil, nil
}

// grantFolders grants the folders of a job to its project if the submitter has access to all blobs and may have uploaded
// them without a project.
func (s *server) grantFolders(ctx context.Context, spec *muster.Spec) error {
	if principalOf(ctx).Project != "" {
		return nil
	}
	for i := range spec.Tasks {
		if sum, ok := strings.CutPrefix(spec.Tasks[i].Stdin, "sha256:"); ok {
			size, err := s.Blobs.Stat(ctx, sum)
			if err == nil {
				err = s.blobGranter.Grant(ctx, store.ProjectGrantee(spec.Project), store.Blob{SHA256: sum, Size: size})
			}
			if err != nil {
				return err
			}
		}
		sum, ok := strings.CutPrefix(spec.Tasks[i].Files, "sha256:")
		if !ok {
			continue
		}
		_, granted, err := s.Grants.BlobGrant(ctx, store.ProjectGrantee(spec.Project), sum)
		if err != nil {
			return err
		}
		if granted {
			continue
		}
		files, err := s.BlobNeeds.Files(ctx, sum)
		if code := muster.CodeOf(err); err != nil && (code == muster.NotFound || code == muster.Invalid || code == muster.TooLarge) {
			continue // the task will fail
		}
		if err != nil {
			return err
		}
		grants := append(slices.Clone(files), store.Blob{SHA256: sum})
		for k := range grants { // sizes in a list of files are not verified
			grants[k].Size, err = s.Blobs.Stat(ctx, grants[k].SHA256)
			if err != nil && muster.CodeOf(err) != muster.NotFound && muster.CodeOf(err) != muster.Invalid {
				return err
			}
			if err != nil {
				grants[k].SHA256 = ""
			}
		}
		grants = slices.DeleteFunc(grants, func(b store.Blob) bool { return b.SHA256 == "" })
		if err := s.blobGranter.Grant(ctx, store.ProjectGrantee(spec.Project), grants...); err != nil {
			return err
		}
	}
	return nil
}
