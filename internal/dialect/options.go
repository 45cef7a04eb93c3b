package dialect

import "slices"

// CommonOptions lists the options that every system has.
func CommonOptions() []Option { return slices.Clone(commonOptions) }
