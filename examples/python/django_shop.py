"""A shop of one view."""

from django.db import models
from django.http import HttpRequest, HttpResponse
from django.urls import path


class Order(models.Model):
    item = models.TextField()

    class Meta:
        app_label = "shop"


def new_order(request: HttpRequest) -> HttpResponse:
    Order.objects.create(item=request.POST["item"])
    return HttpResponse(status=201)


urlpatterns = [path("orders/", new_order, name="new-order")]
