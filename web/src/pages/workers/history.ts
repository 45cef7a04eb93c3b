/** Watt-hours of means of power, each over step seconds; unknown if none is known. */
export function energyOf(power: readonly (number | null)[], step: number): number | undefined {
  const known = power.filter((p) => p !== null);
  return known.length === 0 ? undefined : (known.reduce((sum, p) => sum + p, 0) * step) / 3600;
}
