package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/muster-dev/muster/internal/agent/run"

	"github.com/muster-dev/muster"
)

// writeSecrets writes the secrets of the spec that are files to the task's folder.
func (a *Attempt) writeSecrets(context.Context) error {
	for i := range a.Task.Spec.Secrets {
		if s := &a.Task.Spec.Secrets[i]; s.File != "" {
			if err := a.writeSecret(s); err != nil {
				return run.Failf(muster.TaskInvalid, "write the secret %s to %s: %w", s.Name, s.File, err)
			}
		}
	}
	return nil
}

func (a *Attempt) writeSecret(s *muster.Secret) error {
	root, err := a.OpenRoot()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if parent := path.Dir(s.File); parent != "." {
		if err := root.MkdirAll(filepath.FromSlash(parent), 0o700); err != nil {
			return err
		}
	}
	name := filepath.FromSlash(s.File)
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // a link in the project's folder is replaced, too
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(a.Task.Secret(s.Name))
	return errors.Join(err, f.Close())
}

// isSecretFile reports whether a file, under any name, is the one of a secret in the task's folder, root.
func (a *Attempt) isSecretFile(root *os.Root, info fs.FileInfo) bool {
	for i := range a.Task.Spec.Secrets {
		if file := a.Task.Spec.Secrets[i].File; file != "" {
			if secret, err := root.Stat(filepath.FromSlash(file)); err == nil && os.SameFile(secret, info) {
				return true
			}
		}
	}
	return false
}
