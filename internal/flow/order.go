package flow

// Order returns the stages in an order in which each comes after those that it
// needs, where needs has these for every stage. ok is false if they need each
// other in a circle.
func Order(needs [][]int) (order []int, ok bool) {
	open := make([]int, len(needs)) // needs that are not in the order yet
	readers := make([][]int, len(needs))
	for i := range needs {
		for _, n := range needs[i] {
			readers[n] = append(readers[n], i)
		}
		if open[i] = len(needs[i]); open[i] == 0 {
			order = append(order, i)
		}
	}
	for k := 0; k < len(order); k++ {
		for _, r := range readers[order[k]] {
			if open[r]--; open[r] == 0 {
				order = append(order, r)
			}
		}
	}
	return order, len(order) == len(needs)
}
