//go:build !linux

package process

import "os"

// pristine returns false: folders are not reused on this system.
func pristine(string, []string) bool { return false }

// isEmpty reports whether path is a folder with nothing in it.
func isEmpty(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}
