package gpu

import "golang.org/x/sys/unix"

// mknod creates a device file without a driver.
func mknod(path string) error {
	return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(241, 4095)))
}
