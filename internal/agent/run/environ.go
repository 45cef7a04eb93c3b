package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LookupEnv returns the value of a variable in an environment, "" if it has none.
func LookupEnv(env []string, name string) string {
	for _, entry := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			return v
		}
	}
	return ""
}

// MergeEnv sets entries in env and returns it.
func MergeEnv(env, entries []string) []string {
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		env = SetEnv(env, name, value)
	}
	return env
}

// SetEnv sets one entry in env and returns it.
func SetEnv(env []string, name, value string) []string {
	for i, e := range env {
		if strings.HasPrefix(e, name) && strings.HasPrefix(e[len(name):], "=") {
			env[i] = name + "=" + value
			return env
		}
	}
	return append(env, name+"="+value)
}

// LookPath finds the file of a command as a program with the environment env and the folder dir would: relative to dir if the name has a
// slash, otherwise in its PATH. An empty element of PATH, which means dir, is unsafe and ignored. The error of a missing file is fs.ErrNotExist.
func LookPath(env []string, dir, name string) (string, error) {
	if strings.ContainsRune(name, '/') {
		path := inDir(dir, name)
		return path, checkExecutable(path)
	}
	for d := range strings.SplitSeq(LookupEnv(env, "PATH"), ":") {
		if d == "" {
			continue
		}
		path := filepath.Join(inDir(dir, d), name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// Errors of files that cannot be executed.
var (
	ErrIsFolder      = errors.New("it is a folder")
	ErrNotExecutable = errors.New("it is not executable")
)

func checkExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return ErrIsFolder
	case info.Mode()&0o111 == 0:
		return ErrNotExecutable
	}
	return nil
}
