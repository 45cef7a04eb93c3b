//go:build unix

package term

const terminalDevice = "/dev/tty"
