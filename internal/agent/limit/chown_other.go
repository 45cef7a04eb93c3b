//go:build !linux

package limit

func (g *treeChowner) walk(dir string) error { return g.walkPaths(dir) }
