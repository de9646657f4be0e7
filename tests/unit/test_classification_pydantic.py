"""The rules for pydantic, on errors that it really raised."""

from __future__ import annotations

import pydantic
import pydantic.v1

from tests.helpers.verdicts import judged, said


class Order(pydantic.BaseModel):
    number: int


class OldOrder(pydantic.v1.BaseModel):
    number: int


class Parcel(pydantic.BaseModel):
    content: object


def test_data_that_do_not_fit_are_permanent():
    for model in (Order, OldOrder):
        assert said(judged(model, number="none")) == ("permanent", "pydantic.validation", "")
    assert said(judged(Order.model_validate_json, "{")) == ("permanent", "pydantic.validation", "")


def test_data_that_cannot_be_serialized_are_permanent():
    assert said(judged(Parcel(content=object()).model_dump_json)) == ("permanent", "pydantic.usage", "")


def test_a_model_that_is_wrong_is_permanent():
    def define():
        class Wrong(pydantic.BaseModel):
            content: print  # type: ignore[valid-type]

    assert said(judged(define)) == ("permanent", "pydantic.usage", "")
