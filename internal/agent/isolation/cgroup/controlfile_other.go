//go:build !unix

package cgroup

import "os"

func writeFile(path, value string) error { return os.WriteFile(path, []byte(value), 0) }

func removeDir(path string) error { return os.Remove(path) }
