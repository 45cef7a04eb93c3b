package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// SecretStore stores the secrets of projects. It does not see their values.
type SecretStore interface {
	Secrets(ctx context.Context) ([]Secret, error)                // of all projects, by project and name
	PutSecret(ctx context.Context, s Secret) error                // inserts or replaces by project and name
	DeleteSecret(ctx context.Context, project, name string) error // NotFound
}

// Secret is a value that tasks of a project may be given.
type Secret struct {
	Project string
	Name    string
	Version int      // from 1; how often the value was set
	Workers []string // only workers with all of these tags are given it; nil means all
	Sealed  []byte   // the value, encrypted

	UpdatedAt muster.Time
	UpdatedBy string // name of the key that set it
}
