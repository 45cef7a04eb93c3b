package dag

// TopoSort returns the stages in an order in which each comes after those that it needs,
// where needs has these for every stage. ok is false if there is a cycle.
func TopoSort(needs [][]int) (order []int, ok bool) {
	unmet := make([]int, len(needs)) // needs that are not in the order yet
	dependents := make([][]int, len(needs))
	for i := range needs {
		for _, n := range needs[i] {
			dependents[n] = append(dependents[n], i)
		}
		if unmet[i] = len(needs[i]); unmet[i] == 0 {
			order = append(order, i)
		}
	}
	for k := 0; k < len(order); k++ {
		for _, r := range dependents[order[k]] {
			if unmet[r]--; unmet[r] == 0 {
				order = append(order, r)
			}
		}
	}
	return order, len(order) == len(needs)
}
