"""What a run of vertical.masked_gradients is to do: public parameters, checked before any party is asked."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow.engine.losses import Loss
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.published.masked_gradients.theorems import (
    LEAST_SNR,
    RECORD,
    VECTOR,
    MaskedNoise,
    Reading,
    calibrate_masked,
)
from hedgerow.protocols.vertical.noised_gradients.job import FIRST_ORDER, XGBOOST, GradientsJob
from hedgerow.runtime.protocol import option

STAMP = "accepted known leaks: every feature holder can compute every label (vertical.masked_gradients)"
GIVEN = ("sigma1", "sigma2", "C")
BUDGETS = ("eps_ap", "delta_ap", "eps_pp")
CACHED_BYTES = 4 << 20
"""Messages of about this size are fastest: noise, masked gradients and random words stay in the cache."""
UNDER_WAY = 2
"""Messages that are sent before the first is answered, so that nobody waits for the link."""


@dataclass(frozen=True)
class MaskedGradientsJob(GradientsJob):
    """Everything that the parties must agree on."""

    NAME = "vertical.masked_gradients"

    eps_ap: float | None = option(
        None, "epsilon of one message towards the label holder, as the paper counts", or_inf=True
    )
    delta_ap: float | None = option(None, "beside eps_ap")
    eps_pp: float | None = option(
        None, "epsilon of one message towards feature holders, as the paper counts", or_inf=True
    )
    delta_pp: float | None = option(None, "beside eps_pp; 1 / number of rows by default")
    sigma1: float | None = option(None, "strength of the noise, instead of the four above", at_least=0)
    sigma2: float | None = option(None, "strength of the noise, with sigma1 and C", at_least=0)
    C: float | None = option(None, "strength of the noise, with sigma1 and sigma2", at_least=0)
    n_vectors: int = option(1, "noise vectors of a candidate (W in the paper)", at_least=1)
    score: str = option(XGBOOST, "how splits are rated", one_of=(XGBOOST, FIRST_ORDER))
    reading: Reading = option(
        VECTOR, "which reading of the paper's theorem the noise is made for", one_of=(VECTOR, RECORD)
    )
    accept_low_snr: bool = option(False, "whether noise may drown the gradients", one_of=(True, False))
    accept_known_leaks: bool = option(
        False, "needed: every feature holder can compute every label", one_of=(True, False)
    )
    block_bytes: int = option(64 << 20, "memory for messages about candidates", at_least=1 << 10)

    def check(self) -> None:
        """Strength of noise or budgets, and the gate."""
        super().check()
        self._check_noise()
        others = ", ".join(self.feature_holders)
        if not self.accept_known_leaks:
            raise InvalidParameter(
                f"{self.NAME} does not protect labels: {others} made the noise on the gradients, "
                "and can take it off by least squares, which recovers every label. Which rows each candidate sends "
                f"left shows in the noise that {self.label_holder} gets. vertical.noised_gradients protects labels; "
                "accept_known_leaks=True runs this one all the same, and stamps the model"
            )

    def _check_noise(self) -> None:
        name = self.NAME
        given = [each for each in GIVEN if getattr(self, each) is not None]
        asked = [each for each in (*BUDGETS, "delta_pp") if getattr(self, each) is not None]
        if given and (len(given) < len(GIVEN) or asked):
            raise InvalidParameter(
                f"{name} takes sigma1, sigma2 and C, all three and nothing else, or eps_ap, delta_ap and eps_pp; got "
                f"{', '.join([*given, *asked])}"
            )
        if not given:
            if any(getattr(self, each) is None for each in BUDGETS):
                values = ", ".join(f"{each}={getattr(self, each)!r}" for each in BUDGETS)
                raise InvalidParameter(f"{name} needs {', '.join(BUDGETS)}, or sigma1, sigma2 and C; got {values}")
            self._calibrated(self.delta_pp or 1e-5, 100_000, 2.0)  # whatever can be refused without data

    @property
    def is_given(self) -> bool:
        """Whether the strength of the noise was given directly, without any theorem."""
        return self.C is not None

    def sends_hessians(self, *, weighted: bool = False) -> bool:
        """Whether hessians differ from 1 and are used; else nobody sends them."""
        are_ones = self.task == "regression" and Loss(self.boosting.loss).has_unit_hessians
        return weighted or (self.score != FIRST_ORDER and not are_ones)

    def candidates_at_once(self, n_rows: int, *, weighted: bool = False) -> int:
        """How many may be in a message about this many rows: two messages and their answers must fit block_bytes.

        0: not even one, so its vectors are sent one after the other.
        """
        arrays = self.n_vectors + (2 if self.sends_hessians(weighted=weighted) else 1)
        return min(self.block_bytes // UNDER_WAY, CACHED_BYTES) // (4 * max(n_rows, 1) * arrays)

    def noise_for(self, n_rows: int, loss: Loss | None = None, largest_weight: float = 1.0) -> MaskedNoise:
        """The strength of the noise; sigma1 and sigma2 depend on public numbers only, C on range and weights too."""
        if self.sigma1 is not None and self.sigma2 is not None and self.C is not None:
            return MaskedNoise(float(self.sigma1), float(self.sigma2), float(self.C), n_rows, self.n_vectors)
        bound = 1.0 if loss is None else loss.gradient_bound
        low, high = (0.0, 1.0) if loss is None else loss.label_range
        mu = 2.0 * bound if self.reading == VECTOR else max(high - low, 1e-30)
        mu *= largest_weight
        return self._calibrated(1.0 / n_rows if self.delta_pp is None else self.delta_pp, n_rows, mu)

    def _calibrated(self, delta_pp: float, n_rows: int, mu: float) -> MaskedNoise:
        eps_ap, delta_ap, eps_pp = (float(getattr(self, each)) for each in BUDGETS)
        least_snr = 0.0 if self.accept_low_snr else LEAST_SNR
        return calibrate_masked(
            eps_ap, delta_ap, eps_pp, delta_pp, n_rows, self.n_vectors, mu=mu, reading=self.reading, least_snr=least_snr
        )
