package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/lazyregexp"
	"github.com/muster-dev/muster/internal/sealing"
	"github.com/muster-dev/muster/internal/store"
)

// Config configures a Keeper.
type Config struct {
	Store      store.SecretStore
	KeyFile    string // has the keys; created with the first secret if it does not exist
	KeyCommand string // prints the keys in place of KeyFile, if it is not ""
	Log        *slog.Logger
}

// Info describes a secret without its value.
type Info struct {
	Project   string
	Name      string
	Version   int
	Workers   []string
	UpdatedAt muster.Time
	UpdatedBy string
	Problem   string // why its value cannot be read, or ""
}

// Keeper keeps secrets. All of its methods may be called concurrently.
type Keeper struct {
	cfg Config

	changing sync.Mutex // held while the store is changed, and while keys are loaded

	mu      sync.RWMutex
	rows    map[id]store.Secret
	box     *sealing.Box // nil while the keys are not available
	problem error        // why box is nil
}

type id struct{ project, name string }

// New returns a Keeper of the secrets in the store. Keys that cannot be read are not an error: see Run.
func New(ctx context.Context, cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, rows: map[id]store.Secret{}}
	rows, err := cfg.Store.Secrets(ctx)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		k.rows[id{row.Project, row.Name}] = row
	}
	if len(rows) > 0 {
		k.changing.Lock()
		defer k.changing.Unlock()
		if err := k.unlock(ctx); err != nil {
			cfg.Log.Error("secrets cannot be read, tasks that name one wait", slog.Any("error", err))
		}
	}
	return k, nil
}

// The limits of pauses between attempts to load keys that were not available.
const (
	minUnlockPause = time.Second
	maxUnlockPause = time.Minute
)

// Run tries to load the keys again while they are not available but needed, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	pause := backoff.Backoff{Min: minUnlockPause, Max: maxUnlockPause}
	for k.locked() {
		if pause.Wait(ctx) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		k.changing.Lock()
		err := k.unlock(ctx)
		k.changing.Unlock()
		if err == nil {
			k.cfg.Log.Info("secrets can be read again")
		}
	}
	return nil
}

// locked reports whether there are secrets whose keys are not available.
func (k *Keeper) locked() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.box == nil && len(k.rows) > 0
}

// unlock loads the keys unless that was done, and seals with the current one what older ones sealed. The caller holds changing.
func (k *Keeper) unlock(ctx context.Context) error {
	k.mu.RLock()
	box, count := k.box, len(k.rows)
	k.mu.RUnlock()
	if box != nil {
		return nil
	}
	box, err := k.loadKeys(ctx, count)
	k.mu.Lock()
	k.box, k.problem = box, err
	k.mu.Unlock()
	if err != nil {
		return err
	}
	k.reseal(ctx, box)
	return nil
}

// loadKeys reads the keys. It creates none while there are secrets, which a new key would not open.
func (k *Keeper) loadKeys(ctx context.Context, count int) (*sealing.Box, error) {
	src := sealing.Source{
		File: k.cfg.KeyFile, Command: k.cfg.KeyCommand, Name: "key of secrets", IfLost: "delete it, delete all secrets, and set them again",
	}
	if _, err := os.Stat(src.File); src.Command == "" && count > 0 && errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.Unavailable, "the key of secrets %s is missing: restore it from a backup, or delete all secrets and set them again", src.File)
	}
	keys, err := sealing.LoadKeys(ctx, src)
	if err != nil {
		return nil, err
	}
	return sealing.New(keys)
}

// reseal seals with the current key what older ones sealed, and logs what no key opens.
func (k *Keeper) reseal(ctx context.Context, box *sealing.Box) {
	k.mu.RLock()
	rows := make([]store.Secret, 0, len(k.rows))
	for _, row := range k.rows {
		rows = append(rows, row)
	}
	k.mu.RUnlock()
	for _, row := range rows {
		value, err := box.Open(row.Sealed, sealContext(&row))
		if err == nil && !box.Current(row.Sealed) {
			row.Sealed = box.Seal(value, sealContext(&row))
			err = k.put(ctx, row)
		}
		if err != nil {
			k.cfg.Log.Error("a secret cannot be read", slog.String("project", row.Project), slog.String("name", row.Name), slog.Any("error", err))
		}
	}
}

// sealContext returns what the encryption of a secret is bound to. No part of it can contain the separator.
func sealContext(s *store.Secret) string {
	return strings.Join(append([]string{"secret", s.Project, s.Name, strconv.Itoa(s.Version)}, s.Workers...), "\n")
}

func (k *Keeper) put(ctx context.Context, row store.Secret) error {
	if err := k.cfg.Store.PutSecret(ctx, row); err != nil {
		return err
	}
	k.mu.Lock()
	k.rows[id{row.Project, row.Name}] = row
	k.mu.Unlock()
	return nil
}

// List describes the secrets of a project, by name.
func (k *Keeper) List(project string) []Info {
	k.mu.RLock()
	defer k.mu.RUnlock()
	list := []Info{}
	for key, row := range k.rows {
		if key.project == project {
			list = append(list, k.info(&row))
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (k *Keeper) info(row *store.Secret) Info {
	in := Info{
		Project: row.Project, Name: row.Name, Version: row.Version, Workers: slices.Clone(row.Workers), UpdatedAt: row.UpdatedAt, UpdatedBy: row.UpdatedBy,
	}
	if _, err := k.open(row); err != nil {
		in.Problem = err.Error()
	}
	return in
}

// open returns the value of a secret. The caller holds mu.
func (k *Keeper) open(row *store.Secret) ([]byte, error) {
	if k.box == nil {
		return nil, k.problem
	}
	return k.box.Open(row.Sealed, sealContext(row))
}

// Change is what Set stores.
type Change struct {
	Project, Name string
	Value         []byte
	Workers       []string // only workers with all of these tags are given it; empty means all
	By            string   // name of the key that sets it
}

// Set adds a secret or replaces it. It creates the key with the first secret.
func (k *Keeper) Set(ctx context.Context, c Change) (Info, error) {
	if err := c.check(); err != nil {
		return Info{}, err
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	if err := k.unlock(ctx); err != nil {
		return Info{}, muster.Errorf(muster.Conflict, "the secret is not set: %w", err) // no repetition helps before it is repaired
	}
	k.mu.RLock()
	old, exists := k.rows[id{c.Project, c.Name}]
	count, box := 0, k.box
	for key := range k.rows {
		if key.project == c.Project {
			count++
		}
	}
	k.mu.RUnlock()
	if !exists && count >= muster.MaxSecrets {
		return Info{}, muster.Errorf(muster.Conflict, "project %s has %d secrets, which is the maximum: delete those that no job needs", c.Project, count)
	}
	row := store.Secret{
		Project: c.Project, Name: c.Name, Version: old.Version + 1, Workers: slices.Compact(slices.Sorted(slices.Values(c.Workers))),
		UpdatedAt: muster.NewTime(time.Now()), UpdatedBy: c.By,
	}
	row.Sealed = box.Seal(c.Value, sealContext(&row))
	if err := k.put(ctx, row); err != nil {
		return Info{}, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.info(&row), nil
}

var namePattern = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkName returns an Invalid error for a name that a secret may not have.
func checkName(name string) error {
	switch {
	case !namePattern.Get().MatchString(name) || len(name) > muster.MaxNameSize:
		return muster.Errorf(muster.Invalid, "%q is not a name of a secret: use letters, digits and _, at most %d, not a digit first", muster.Truncate(name), muster.MaxNameSize)
	case strings.HasPrefix(strings.ToUpper(name), "MUSTER_"):
		return muster.Errorf(muster.Invalid, "%s is not a name of a secret: names with MUSTER_ are those of Muster's own variables", name)
	}
	return nil
}

func (c *Change) check() error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	trimmed := len(bytes.TrimSpace(c.Value))
	switch {
	case trimmed == 0:
		return muster.Errorf(muster.Invalid, "the value of %s is empty", c.Name)
	case trimmed < muster.MinSecretSize:
		return muster.Errorf(muster.Invalid, "the value of %s has %d bytes, a secret has at least %d: a shorter one cannot be hidden in logs. Use env for what is not secret", c.Name, trimmed, muster.MinSecretSize)
	case len(c.Value) > muster.MaxSecretSize:
		return muster.Errorf(muster.TooLarge, "the value of %s is larger than %s", c.Name, muster.Size(muster.MaxSecretSize))
	case !utf8.Valid(c.Value) || bytes.IndexByte(c.Value, 0) >= 0:
		return muster.Errorf(muster.Invalid, "the value of %s is not text in UTF-8: encode it, for example with base64, and decode it in the task", c.Name)
	}
	for _, tag := range c.Workers {
		if tag == "" || len(tag) > muster.MaxNameSize || strings.ContainsAny(tag, " \t\r\n,") {
			return muster.Errorf(muster.Invalid, "%q is not a tag of workers", muster.Truncate(tag))
		}
	}
	return nil
}

// Delete deletes a secret. Tasks that run keep its value.
func (k *Keeper) Delete(ctx context.Context, project, name string) error {
	k.changing.Lock()
	defer k.changing.Unlock()
	if err := k.cfg.Store.DeleteSecret(ctx, project, name); err != nil {
		return err
	}
	k.mu.Lock()
	delete(k.rows, id{project, name})
	k.mu.Unlock()
	return nil
}

// Find returns the tags that workers need for a secret: NotFound if the project does not have it.
func (k *Keeper) Find(project, name string) (workers []string, err error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	row, ok := k.rows[id{project, name}]
	if !ok {
		return nil, notFound(project, name)
	}
	return row.Workers, nil
}

// Version returns a text that differs for each value that a secret was given, also after it was deleted and set again; false if there is no such secret.
func (k *Keeper) Version(project, name string) (string, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	row, ok := k.rows[id{project, name}]
	if !ok {
		return "", false
	}
	return fmt.Sprintf("%d of %s", row.Version, row.UpdatedAt), true
}

// Finder finds secrets.
type Finder interface {
	// Find returns the tags that workers need for a secret, or NotFound.
	Find(project, name string) (workers []string, err error)
}

// Require rejects secrets that the project of a job does not have, and requires the tags that workers need for those that it has.
func Require(f Finder, spec *muster.Spec) (errs []muster.FieldError) {
	for i := range spec.Tasks {
		t := &spec.Tasks[i]
		for k := range t.Secrets {
			workers, err := f.Find(spec.Project, t.Secrets[k].Name)
			if err != nil {
				errs = append(errs, muster.FieldError{Path: "tasks[" + strconv.Itoa(i) + "].secrets[" + strconv.Itoa(k) + "]", Message: err.Error()})
				continue
			}
			for _, tag := range workers {
				if !slices.Contains(t.Where.Tags, tag) {
					t.Where.Tags = append(slices.Clip(t.Where.Tags), tag)
				}
			}
		}
	}
	return errs
}

func notFound(project, name string) error {
	return muster.Errorf(muster.NotFound, "project %s has no secret %s: set it with muster secrets set %s --project %s", project, name, name, project)
}

// Values returns the values of a task's secrets for a worker with tags. Its errors are NotFound if the project does not have one of them,
// Forbidden if the worker may not have it, and Unavailable if it cannot be read. It does no input or output.
func (k *Keeper) Values(project string, secrets []muster.Secret, tags []string) ([]muster.SecretValue, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var values []muster.SecretValue
	for _, s := range secrets {
		if slices.ContainsFunc(values, func(v muster.SecretValue) bool { return v.Name == s.Name }) {
			continue
		}
		row, ok := k.rows[id{project, s.Name}]
		if !ok {
			return nil, notFound(project, s.Name)
		}
		for _, tag := range row.Workers {
			if !slices.Contains(tags, tag) {
				return nil, muster.Errorf(muster.Forbidden, "the secret %s is only for workers with the tag %s", s.Name, tag)
			}
		}
		value, err := k.open(&row)
		if err != nil {
			return nil, muster.Errorf(muster.Unavailable, "the server cannot read the secret %s: %w", s.Name, err)
		}
		values = append(values, muster.SecretValue{Name: s.Name, Value: value})
	}
	return values, nil
}
