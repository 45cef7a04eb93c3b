//go:build !linux

package doctor

func (c *Config) locker(string) int { return 0 }

func (c *Config) replaced(int) bool { return false }

func (c *Config) listener(int) string { return "" }

func unsynchronised() (off, known bool) { return false, false }
