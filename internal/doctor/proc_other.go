//go:build !linux

package doctor

func (c *Config) lockHolder(string) int { return 0 }

func (c *Config) exeReplaced(int) bool { return false }

func clockUnsynced() (off, known bool) { return false, false }
